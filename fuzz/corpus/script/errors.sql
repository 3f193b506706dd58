\set x 1 / 0
\set y :word + 1
\set z 1 < 2 < 3
