SELECT 'a;''b:x', "c;:x", $$;:d$$, $t$ $$; $t$, E'\';:d', e'x'
 'y\'';
-- ;
/* ; /* ; */ */ SELECT (1;2), a[1:n], :d::text, x:=1;
