//! Chance that can be repeated: a seed gives the same program and the same events everywhere.

/// A source of random numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice that a seed decides.
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `count`.
    pub fn below(&mut self, count: u64) -> u64 {
        self.any() % count.max(1)
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }

    /// A number as programs meet them: small, near a limit of some type, or anything.
    pub fn number(&mut self) -> u64 {
        let near = self.below(5) as i64 - 2;
        match self.below(8) {
            0..=3 => self.below(20).wrapping_sub(4),
            4 => (1u64 << self.below(64)).wrapping_add_signed(near),
            5 => self.below(1000) * 1_000_000 + self.below(1_000_000),
            6 => self.any() >> self.below(64),
            _ => self.any(),
        }
    }

    /// A byte: often 0, a letter, or anything.
    pub fn byte(&mut self) -> u8 {
        match self.below(6) {
            0 | 1 => 0,
            2 => 1,
            3 => b'a' + self.below(4) as u8,
            _ => self.any() as u8,
        }
    }
}
