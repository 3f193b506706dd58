SELECT ('a' \set x 1
