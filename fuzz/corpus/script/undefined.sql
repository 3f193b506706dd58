SELECT :nothing;
