//! Settings in layers: a layer sets some of them, and leaves the others to the layer below.

/// Value of one setting of type `T` in a layer, which may leave it unset.
pub(crate) trait Layered<T>: Sized {
    /// The setting: the value of this layer, or that of the layer below if this one leaves it unset.
    fn over(&self, below: &T) -> T;

    /// Merges two layers; the later one wins.
    fn and(self, later: Self) -> Self;
}

impl<T: Clone> Layered<T> for Option<T> {
    fn over(&self, below: &T) -> T {
        self.as_ref().unwrap_or(below).clone()
    }

    fn and(self, later: Self) -> Self {
        later.or(self)
    }
}

/// A setting that may be without a value: no layer takes the value of another one off.
impl<T: Clone> Layered<Option<T>> for Option<T> {
    fn over(&self, below: &Option<T>) -> Option<T> {
        self.as_ref().or(below.as_ref()).cloned()
    }

    fn and(self, later: Self) -> Self {
        later.or(self)
    }
}

/// Declares settings with their defaults, and the type of one layer of them. In a layer each setting is an [`Option`],
/// or has the type after `as`. `#[settings(…)]` and `#[layer(…)]` are attributes of a field in one of the two types.
macro_rules! layered {
    (
        $(#[$settings_meta:meta])*
        pub struct $settings:ident;

        $(#[$layer_meta:meta])*
        pub struct $layer:ident $({ $(#[$own_meta:meta])* $own:ident: $own_type:ty })?;

        $(
            $(#[doc = $doc:tt])*
            $(#[settings($of_settings:meta)])*
            $(#[layer($of_layer:meta)])*
            $field:ident: $type:ty $(as $layer_type:ty)? = $default:expr,
        )+
    ) => {
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        $(#[$settings_meta])*
        #[serde(default)]
        pub struct $settings {
            $($(#[doc = $doc])* $(#[$of_settings])* pub $field: $type,)+
        }

        impl Default for $settings {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
        $(#[$layer_meta])*
        #[serde(default, deny_unknown_fields)]
        pub struct $layer {
            $(
                $(#[$own_meta])*
                #[serde(skip_serializing_if = "crate::default::is_default")]
                pub $own: $own_type,
            )?
            $(
                $(#[doc = $doc])*
                $(#[$of_layer])*
                #[serde(skip_serializing_if = "crate::default::is_default")]
                pub $field: $crate::layered::layered!(@layer $type $(, $layer_type)?),
            )+
        }

        impl $layer {
            /// The settings with what this layer replaces.
            #[must_use]
            pub fn over(&self, below: &$settings) -> $settings {
                $settings { $($field: $crate::layered::Layered::<$type>::over(&self.$field, &below.$field),)+ }
            }

            /// Both, where the later one wins.
            #[must_use]
            pub fn and(self, later: Self) -> Self {
                Self {
                    $($own: later.$own.or(self.$own),)?
                    $($field: $crate::layered::Layered::<$type>::and(self.$field, later.$field),)+
                }
            }
        }
    };
    (@layer $type:ty) => { Option<$type> };
    (@layer $type:ty, $layer_type:ty) => { $layer_type };
}
pub(crate) use layered;
