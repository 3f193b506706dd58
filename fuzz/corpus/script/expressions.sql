\set a -9223372036854775808 / (1 + :scale) % 7 # ~3 | 5 & 6 << 2 >> 1
\set b CASE WHEN :a IS NULL THEN 1 WHEN NOT :a <> 2 OR FALSE THEN 2.5e-3 ELSE least(1, :a, .5) END
\set c debug(:b ISNULL) AND :a NOTNULL IS NOT FALSE
\set d permute(:a, 100) + hash(:a) - hash_fnv1a(:a, 3) * hash_murmur2(1)
\set e random_zipfian(1, 1000, 1.07) + random_gaussian(1, 10, 2.5) + random_exponential(1, 10, 2)
\set f pow(2, 0.5) + power(2, 3) + sqrt(2) + ln(2) + exp(1) + pi() + abs(-1) + int(2.5) + double(2) + mod(7, 3) + greatest(1, 2)
SELECT :a, :b, :c, :d, :e, :f;
