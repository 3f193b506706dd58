\sleep 1
\sleep 2 ms
\sleep 3us
\sleep :scale us
\sleep :word
\sleep -5 s
