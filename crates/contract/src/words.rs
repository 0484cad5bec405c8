//! Enums with a text for each variant.

/// Declares an enum with a text for each variant: its word in subjects and events, or its name on the server.
#[macro_export]
macro_rules! words {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $($(#[$of_variant:meta])* $variant:ident = $word:literal,)*
        }

        $(#[$of_text:meta])*
        fn $text:ident;
    ) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$of_variant])* $variant,)*
        }

        impl $name {
            /// Every variant, in the order of the enum.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            $(#[$of_text])*
            pub const fn $text(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The variant with this text.
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($word => Some(Self::$variant),)* _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.$text())
            }
        }
    };
}
pub(crate) use words;
