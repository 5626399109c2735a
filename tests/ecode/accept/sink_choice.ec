// Sinks one by one.
//@ sinks: load, distance
for (s in sinks) {
    if (s.load > 80 || age(s) > 1000000000) { reject(s); continue; }
    if (s.id == 3) break;
    accept(s);
}
return 1;
