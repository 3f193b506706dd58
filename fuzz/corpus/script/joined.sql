SELECT 1\; SELECT :d \:x;
