\set x random(1, 4)
\if :x = 1
SELECT 1;
\elif :x = 2
\if TRUE
SELECT 2
\else
SELECT 3
\endif
\else
\sleep 1 us
\endif
