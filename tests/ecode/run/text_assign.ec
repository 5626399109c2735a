// Assigned from a text, with zeros behind it, and from another array; single characters.
//@ input: char comm[8]
struct output {
    char name[8], copy[8], letter;
    u32 length;
};
char local[8] = "previous";
output.length = length(local);
local = "now";
output.name = local;
output.copy = comm;
output.copy[0] = 'X';
output.letter = local[1];
test "copied" {
    input.comm = "abc";
    run;
    expect output.name == "now" && output.name[7] == 0 && output.copy == "Xbc";
    expect output.letter == 'o' && output.length == 8;
}
