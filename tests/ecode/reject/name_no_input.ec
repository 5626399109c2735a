// A program without input cannot name it.
return input.x + x > 0;
//@ error 2:8 there is no input here
//@ hint declare it: struct input { ... };
//@ error 2:18 'x' is not declared
