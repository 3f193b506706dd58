SELECT 1 AS x \gset
SELECT :x; \aset p_
SELECT :p_x, ':x' \; SELECT 2 \gset
