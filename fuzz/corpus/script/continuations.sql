\set x 1 + \
 2 + \
 3
\sleep \
 1 \
 us
SELECT :x
;
