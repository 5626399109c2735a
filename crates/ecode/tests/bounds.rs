//! No text makes the compiler hang, crash, or use more than a named amount of time and memory:
//! texts of the largest size that were written to make it.
//!
//! Time is that of this thread on a CPU, the best of a few, and beside it stands what a piece of
//! plain work takes on the same machine: so it matters neither how fast nor how busy that is. A
//! build with debug assertions is many times slower: there the tests show only that nothing hangs
//! or overflows.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Duration;

use ecode::environment::Environment;
use ecode::lexer;
use ecode::limits::{TEXT_BYTES, TOKENS};
use ecode::source::Source;

/// What a compilation may take: as long as a hash of so many bytes, one by one; some 30 ms.
const HASHED_BYTES: u32 = if cfg!(debug_assertions) {
    200_000_000
} else {
    30_000_000
};
/// A text that takes longer is compiled again so often, and the least counts.
const TRIES: usize = 5;
/// What the process may have grown by, all texts together.
const MEMORY_KIB: u64 = 64 * 1024;
/// The smallest stack on which it must do.
const STACK_BYTES: usize = if cfg!(debug_assertions) {
    2 << 20
} else {
    512 << 10
};

/// As many as fit, in bytes and in tokens.
fn repeated(begin: &str, part: impl Fn(usize) -> String, end: &str) -> String {
    filled(TEXT_BYTES, begin, part, end)
}

/// As many as fit so many bytes.
fn filled(bytes: usize, begin: &str, part: impl Fn(usize) -> String, end: &str) -> String {
    let tokens = |text: &str| lexer::lex(&Source::new("part", text)).0.len();
    let most = TOKENS / tokens(&part(0)).max(2);
    let mut text = begin.to_owned();
    for at in 0..most {
        let part = part(at);
        if text.len() + part.len() + end.len() > bytes {
            break;
        }
        text += &part;
    }
    text + end
}

fn same(part: &str) -> String {
    repeated("", |_| part.to_owned(), "")
}

/// Nesting and chains.
fn deep_texts() -> Vec<String> {
    let operators = ["+", "&&", "?1:", ",", "=", "*-", "==", "<<"];
    let mut texts: Vec<String> = operators.map(|op| same(&format!("a{op}"))).into();
    for part in [
        "(", "{", "[", "!", "-", "(int)", "sizeof ", "if(1)", "while(1)", "for(;;)", "do ",
    ] {
        texts.push(same(part));
        texts.push(repeated("", |_| part.to_owned(), "1"));
    }
    texts.push(repeated("int a[4];return ", |_| "a[".into(), "0"));
    texts.push(repeated("int a", |_| "[1]".into(), ";a[0]=1;"));
    texts.push(repeated("int a[4] = ", |_| "{".into(), ";"));
    texts.push(repeated(
        "switch(1){case 1:",
        |_| "switch(1){case 1:".into(),
        "",
    ));
    texts.push("int a[4];return ".to_owned() + &"a[".repeat(60) + "0" + &"]".repeat(60) + ";");
    texts.push(format!(
        "int a=1;return {}1{};",
        "(a+".repeat(62),
        ")".repeat(62)
    ));
    texts.push(format!("int a=1;return a{};", "+a".repeat(250)));
    texts.push(format!(
        "int a=1;if(a){}a++;{}",
        "{".repeat(60),
        "}".repeat(60)
    ));
    texts
}

/// Declarations.
fn declaring_texts() -> Vec<String> {
    let mut nested = "struct t0{int x;};".to_owned();
    for at in 1..1500 {
        let _ = write!(nested, "struct t{at}{{struct t{} x,y;}};", at - 1);
    }
    let chain = "struct t0{char x;};".to_owned()
        + &repeated(
            "",
            |at| format!("struct t{}{{struct t{at} x;}};", at + 1),
            "",
        );
    vec![
        nested,
        chain[..chain.rfind("struct t").unwrap_or(0)].to_owned() + "return 1;",
        repeated("", |at| format!("int a{at};"), "return 1;"),
        repeated(
            "",
            |at| format!("int a{at}=a{};", at.max(1) - 1),
            "return 1;",
        ),
        repeated("", |at| format!("int a{at}[4096];"), "return 1;"),
        repeated("", |at| format!("static int a{at};"), "return 1;"),
        repeated("", |_| "static int a;".into(), "return 1;"),
        repeated("", |at| format!("const int a{at}[]={{1}};"), "return 1;"),
        repeated("enum{", |at| format!("a{at},"), "};return 1;"),
        repeated("struct input{", |at| format!("char a{at};"), "};return a0;"),
        repeated("struct input{", |_| "char a;".into(), "};return a;"),
        repeated("", |_| "fuel 1;".into(), "return 1;"),
        repeated("", |at| format!("int f{at}(){{return 1;}}"), "return f0();"),
        repeated("", |at| format!("test \"{at}\"{{run;}}"), "return 1;"),
        repeated(
            "int f(",
            |at| format!("int a{at},"),
            "int b){return b;}return f(1);",
        ),
        format!("int {};", "a".repeat(TEXT_BYTES - 8)),
        format!("/*{}", "*".repeat(TEXT_BYTES - 8)),
        format!("\"{}\"", "a".repeat(TEXT_BYTES - 8)),
        same("\n"),
        same(";"),
        same("\u{20ac}"),
    ]
}

/// First values.
fn initialising_texts() -> Vec<String> {
    vec![
        repeated("static int a[4096]={", |_| "1,".into(), "};return a[0];"),
        repeated("int a[1024]={", |_| "1,".into(), "};return a[0];"),
        repeated("int a[]={", |_| "1,".into(), "};return a[0];"),
        repeated(
            "static int a[4096]={",
            |at| format!("[{}]=1,", 4095 - at % 4096),
            "};a[0]++;",
        ),
        repeated("static int a[4096]={", |_| "[0]=1,".into(), "};a[0]++;"),
        repeated(
            "static int a[8][8][8][8]={",
            |_| "[0]={{{1}}},".into(),
            "};a[0][0][0][0]++;",
        ),
        repeated(
            "static int a[64][64]={",
            |at| format!("[{}]=1,2,", at % 64),
            "};a[0][0]++;",
        ),
        repeated(
            "struct s{int x[512];}b;struct s a[2]={",
            |_| "[0]=b,".into(),
            "};b=a[0];",
        ),
        repeated(
            "static char a[512][64]={",
            |_| "\"abcdefghij\",".into(),
            "};a[0][0]++;",
        ),
    ]
}

/// Functions that are expanded again and again.
fn calling_texts() -> Vec<String> {
    let mut doubling = "int f0(int n){return n+1;}".to_owned();
    let mut hundredfold = doubling.clone();
    let mut deep = doubling.clone();
    for at in 1..64 {
        let before = at - 1;
        let _ = write!(
            doubling,
            "int f{at}(int n){{return f{before}(n)+f{before}(n);}}"
        );
        let _ = write!(hundredfold, "int f{at}(int n){{");
        let _ = write!(
            hundredfold,
            "{}return n;}}",
            format!("n+=f{before}(n);").repeat(40)
        );
        let tail = ")".repeat(40);
        let _ = write!(
            deep,
            "int f{at}(int n){{return {}f{before}(n){tail};}}",
            "(n+".repeat(40)
        );
    }
    let all = (0..60).map(|to| format!("f{to}(n);")).collect::<String>();
    let everyone = (0..60)
        .map(|at| format!("void f{at}(int n){{{all}}}"))
        .collect::<String>();
    vec![
        doubling + "return f63(1);",
        hundredfold + "return f63(1);",
        deep + "return f63(1);",
        everyone + "f0(1);",
    ]
}

/// Statements, so many bytes of them: some fit the limits just so.
fn running_texts(bytes: usize) -> Vec<String> {
    vec![
        filled(
            bytes,
            "int a=1;switch(a){",
            |at| format!("case {at}:"),
            "a=2;}return a;",
        ),
        filled(
            bytes,
            "int a=1;switch(a){",
            |at| format!("case {at}:a++;"),
            "}return a;",
        ),
        filled(
            bytes,
            "int a=1;",
            |_| "if(a)a++;else a--;".into(),
            "return a;",
        ),
        filled(bytes, "int a=1;", |_| "for(;a<9;)a++;".into(), "return a;"),
        filled(bytes, "int a=1;", |_| "a=a*a/a%3;".into(), "return a;"),
        filled(bytes, "fixed a=1.5;", |_| "a=a*a/a;".into(), "return a>1;"),
        filled(
            bytes,
            "u64 a=1;",
            |_| "if(once(a,1))a++;".into(),
            "return a;",
        ),
        filled(
            bytes,
            "static int a[4];int i=1;",
            |_| "a[i]+=a[i&3];".into(),
            "return i;",
        ),
        filled(
            bytes,
            "char a[64];",
            |_| "if(a==\"abcdefghijklmnop\")count(1);".into(),
            "return 1;",
        ),
        filled(
            bytes,
            "struct s{char x[4096];};static struct s a,b;",
            |_| "a=b;".into(),
            "return 1;",
        ),
        filled(
            bytes,
            "int a=1;",
            |at| format!("int b{at}=a;if(b{at})a+=b{at};"),
            "return a;",
        ),
        filled(
            bytes,
            "int a=1;",
            |at| format!("{{int b{at}=a++;a+=b{at};}}"),
            "return a;",
        ),
        filled(
            bytes,
            "int a=1;while(a){",
            |_| "if(a>5)break;a++;".into(),
            "}return a;",
        ),
    ]
}

/// Loops that can be written out.
fn looping_texts(bytes: usize) -> Vec<String> {
    vec![
        filled(
            bytes,
            "int a=1;",
            |at| format!("for(int i=0;i<{};i++)a+=i*a;", 2 + at % 60),
            "return a;",
        ),
        filled(
            bytes,
            "int a=1;",
            |_| "for(int i=0;i<7;i++)for(int j=0;j<9;j++)for(int k=0;k<9;k++)a+=i^j^k;".into(),
            "return a;",
        ),
        filled(
            bytes,
            "int a=1;for(int i=0;i<9;i++){",
            |_| "for(int j=0;j<2;j++)a+=a*j;".into(),
            "}return a;",
        ),
    ]
}

/// Mistakes.
fn wrong_texts() -> Vec<String> {
    let long = "n".repeat(4000);
    let names = repeated("", |at| format!("int abcdefgh{at:05}=1;"), "");
    let half = &names[..names.len() / 2];
    let half = &half[..half.rfind("int").unwrap_or(0)];
    let misspelled = repeated(half, |at| format!("abcdefgi{at:05};"), "");
    vec![
        same("x;"),
        misspelled,
        repeated("", |at| format!("x{at};"), ""),
        repeated("", |at| format!("x{at}\n"), ""),
        repeated("", |at| format!("f{at}();"), ""),
        repeated("", |at| format!("struct s{at} a;"), ""),
        repeated("struct s{int a;};struct s b;", |at| format!("b.x{at};"), ""),
        repeated(
            &format!("struct {long}{{int a;}};struct {long} b;"),
            |_| "b.x;b+1;".into(),
            "",
        ),
        repeated(&format!("int {long};"), |_| format!("int {long};"), ""),
        same("1=2;"),
        same("break;"),
        same("return \"a\";"),
        same("int a[2]={1,2,3};"),
        same("@"),
        same("}"),
        same("struct"),
        same("case 1:"),
        same("\"\n"),
        same("void a;"),
        repeated("int f(){return 1;}", |_| "f(1);".into(), ""),
    ]
}

/// Time of this thread on a CPU. `None`: the kernel does not say.
fn cpu_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ')
        .next()?
        .parse()
        .ok()
        .map(Duration::from_nanos)
}

/// How long something took, and what came of it.
fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = cpu_time();
    let made = work();
    let took = start.zip(cpu_time()).map(|(start, end)| end - start);
    (took.unwrap_or_default(), made)
}

/// The plain work that a compilation is compared with (FNV-1a).
fn hash_time() -> Duration {
    let hash = || {
        (0..HASHED_BYTES).fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ (black_box(byte) & 0xff)).wrapping_mul(0x0100_0193)
        })
    };
    timed(|| black_box(hash())).0
}

/// Compiles a text: how long that took, and what is shown.
fn compile(text: &str) -> (Duration, String) {
    let source = Source::new("text", text);
    timed(|| match ecode::compile(&source, &Environment::default()) {
        Ok(compiled) => format!("{:?}", compiled.cost),
        Err(refused) => refused.render(&source),
    })
}

fn memory_kib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn no_text_takes_more_than_its_time_memory_and_stack() {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let thread = thread.spawn(|| {
        let texts = [
            deep_texts(),
            declaring_texts(),
            initialising_texts(),
            calling_texts(),
            running_texts(TEXT_BYTES),
            running_texts(TEXT_BYTES / 2),
            running_texts(TEXT_BYTES / 4),
            running_texts(TEXT_BYTES / 8),
            running_texts(TEXT_BYTES / 16),
            looping_texts(TEXT_BYTES),
            looping_texts(TEXT_BYTES / 4),
            looping_texts(TEXT_BYTES / 16),
            wrong_texts(),
        ];
        let texts = texts.concat();
        let before = memory_kib();
        let mut slow = String::new();
        let mut limit = hash_time();
        for text in &texts {
            let begin: String = text.chars().take(50).collect();
            assert!(text.len() <= TEXT_BYTES, "{begin}: {} bytes", text.len());
            let (mut took, shown) = compile(text);
            assert!(
                shown.len() < 64 * 1024,
                "{begin}: {} bytes of findings",
                shown.len()
            );
            for _ in 1..TRIES {
                if took <= limit {
                    break;
                }
                limit = limit.max(hash_time());
                took = took.min(compile(text).0);
            }
            if took > limit {
                let _ = writeln!(
                    slow,
                    "{took:?}, not {limit:?}: {begin}: {}",
                    &shown[..shown.len().min(80)]
                );
            }
            if std::env::var_os("ECALLS_VERBOSE").is_some() {
                println!("{took:?} of {limit:?} {begin:?} {:?}", shown.lines().next());
            }
        }
        assert!(slow.is_empty(), "too slow:\n{slow}");
        if let (Some(before), Some(after)) = (before, memory_kib()) {
            assert!(after - before < MEMORY_KIB, "{} KiB more", after - before);
        }
    });
    thread.expect("a thread").join().expect("no text breaks it");
}
