//! operator
fn main() {}
