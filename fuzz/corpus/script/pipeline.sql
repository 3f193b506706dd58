\startpipeline
SELECT 1;
\if :d > 0
\syncpipeline
\endif
SELECT :scale;
\endpipeline
