//! Built against a contract that is newer than any host.

wit_bindgen::generate!({
    inline: "
        package operator:reconciler@0.99.0;
        interface describe {
            record descriptor { name: string }
            describe: func() -> descriptor;
        }
        interface reconcile {
            reconcile: func(name: string) -> result<string, string>;
        }
        world reconciler {
            export describe;
            export reconcile;
        }
    ",
});

use exports::operator::reconciler::{describe, reconcile};

struct Module;

impl describe::Guest for Module {
    fn describe() -> describe::Descriptor {
        describe::Descriptor { name: "variant".into() }
    }
}

impl reconcile::Guest for Module {
    fn reconcile(name: String) -> Result<String, String> {
        Ok(name)
    }
}

export!(Module);
