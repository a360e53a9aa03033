//! Never says what it is.

variants::variant!(|descriptor| loop {
    std::hint::black_box(&descriptor);
});
