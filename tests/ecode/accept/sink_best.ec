// The best sinks by a key.
//@ sinks: load, distance
best(2, sink.load * 100 - max(sink.distance, 3) - age(sink) / 1000)
