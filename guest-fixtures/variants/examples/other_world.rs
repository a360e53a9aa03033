//! A component, but no operator.

wit_bindgen::generate!({
    inline: "
        package fixtures:other;
        world greeter {
            export greet: func(name: string) -> string;
        }
    ",
});

struct Module;

impl Guest for Module {
    fn greet(name: String) -> String {
        format!("hello {name}")
    }
}

export!(Module);
