\set größe 1
SELECT :größe, 'ä:größe', E'\ä', $ü$;$ü$;
