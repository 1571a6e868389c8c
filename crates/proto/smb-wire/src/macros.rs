//! Declarations of open numbers, flags and views as tables.

/// A number with named values; others are kept as they are.
macro_rules! number {
    ($(#[$meta:meta])* $name:ident($ty:ty) { $( $(#[$const_meta:meta])* $const:ident = $value:literal; )* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $ty);

        impl $name {
            $( $(#[$const_meta])* pub const $const: Self = Self($value); )*

            /// The value's name, if it has one here.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $( $value => Some(stringify!($const)), )*
                    _ => None,
                }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{:#x}", self.0),
                }
            }
        }

        crate::macros::field!($name($ty));
    };
}

/// A set of bits, some of them named; others are kept as they are.
macro_rules! flags {
    ($(#[$meta:meta])* $name:ident($ty:ty) { $( $(#[$const_meta:meta])* $const:ident = $value:literal; )* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $ty);

        impl $name {
            /// No bit.
            pub const NONE: Self = Self(0);
            $( $(#[$const_meta])* pub const $const: Self = Self($value); )*

            /// Whether all bits of `other` are set.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether any bit of `other` is set.
            pub const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// With the bits of `other` set too.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// With the bits of `other` cleared.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{:#x}", self.0)?;
                let named: [(Self, &str); _] = [ $( (Self::$const, stringify!($const)), )* ];
                for (flag, name) in named {
                    if self.contains(flag) {
                        write!(f, " {name}")?;
                    }
                }
                Ok(())
            }
        }

        crate::macros::field!($name($ty));
    };
}

/// Shows a type by its name alone: what it holds is a message, so file content and names.
macro_rules! opaque {
    ($($name:ident $(<$life:lifetime>)?),*) => { $(
        impl std::fmt::Debug for $name $(<$life>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )* };
}

/// Lets a newtype of an integer stand in a view.
macro_rules! field {
    ($name:ident($ty:ty)) => {
        impl crate::field::Field for $name {
            #[inline]
            fn read(bytes: &[u8], at: usize) -> Self {
                Self(<$ty as crate::field::Field>::read(bytes, at))
            }

            #[inline]
            fn write(self, bytes: &mut [u8], at: usize) {
                crate::field::Field::write(self.0, bytes, at);
            }
        }
    };
}

/// The body of a message as a view of the whole message: header first, then the body, whose fields are placed as in the
/// document, counted from the body's start. Offsets of variable parts count from the header's start, and so do ranges.
macro_rules! body {
    (
        $(#[$meta:meta])*
        $name:ident: $command:ident, $direction:ident, $size:literal
        { $($fields:tt)* } $(parts { $($parts:tt)* })? $(loose { $($loose:tt)* })? $(also $extra:path)?
    ) => {
        crate::macros::view! {
            $(#[$meta])*
            $name [crate::header::HEADER_LEN, $size & !1usize] { $($fields)* }
            $(parts { $($parts)* })?
            $(loose { $($loose)* })?
            also |bytes: &[u8]| {
                crate::body::check(
                    stringify!($name),
                    bytes,
                    crate::command::Command::$command,
                    crate::body::Direction::$direction,
                    $size,
                )
            }, $( $extra, )?
        }

        impl<B: AsRef<[u8]>> $name<B> {
            /// Value of the structure size field.
            pub const STRUCTURE_SIZE: u16 = $size;
            /// Command that the header of such a message has.
            pub const COMMAND: crate::command::Command = crate::command::Command::$command;

            /// The message's header.
            pub fn header(&self) -> crate::header::Header<&[u8]> {
                crate::header::Header::unchecked(self.bytes.as_ref())
            }
        }
    };
}

/// A structure without a header, such as a context's data.
macro_rules! record {
    (
        $(#[$meta:meta])*
        $name:ident: $size:literal
        { $($fields:tt)* } $(also $extra:path)?
    ) => {
        crate::macros::view! {
            $(#[$meta])*
            $name [0usize, $size] { $($fields)* } also $( $extra, )?
        }
    };
}

/// Getters and setters over bytes, read or written in place. Parts must be within the bytes; loose ones, which receivers
/// ignore in most cases, are empty where they are not.
macro_rules! view {
    (
        $(#[$meta:meta])*
        $name:ident [$base:expr, $fixed:expr]
        { $( $(#[$field_meta:meta])* $field:ident, $set:ident: $ty:ty = $at:literal; )* }
        $(parts { $(
            $(#[$part_meta:meta])*
            $part:ident, $range:ident: $offset_ty:ty = $offset_at:literal, $length_ty:ty = $length_at:literal;
        )* })?
        $(loose { $(
            $(#[$loose_meta:meta])*
            $loose:ident, $loose_range:ident:
                $loose_offset_ty:ty = $loose_offset_at:literal, $loose_length_ty:ty = $loose_length_at:literal;
        )* })?
        also $( $extra:expr, )*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        pub struct $name<B> {
            bytes: B,
        }

        impl<B: AsRef<[u8]>> $name<B> {
            /// Bytes up to the end of the fixed part.
            pub const FIXED_LEN: usize = $base + $fixed;

            /// Looks at bytes as this structure. What follows the structure is ignored and kept.
            ///
            /// # Errors
            /// When the fixed part is not whole, is another structure, or a variable part is out of bounds.
            #[inline]
            pub fn parse(bytes: B) -> Result<Self, crate::error::WireError> {
                {
                    let all: &[u8] = bytes.as_ref();
                    crate::field::fixed(stringify!($name), all, Self::FIXED_LEN)?;
                    $( ($extra)(all)?; )*
                    $($(
                        crate::field::part(
                            stringify!($name),
                            all,
                            Self::FIXED_LEN,
                            <$offset_ty as crate::field::Field>::read(all, $base + $offset_at).into(),
                            <$length_ty as crate::field::Field>::read(all, $base + $length_at).into(),
                        )?;
                    )*)?
                }
                Ok(Self { bytes })
            }

            /// A view whose checks the caller has made.
            #[allow(dead_code, reason = "few views are made without parsing")]
            pub(crate) fn unchecked(bytes: B) -> Self {
                Self { bytes }
            }

            /// The bytes that are looked at.
            pub fn as_bytes(&self) -> &[u8] {
                self.bytes.as_ref()
            }

            /// Gives back what was looked at.
            pub fn into_inner(self) -> B {
                self.bytes
            }

            $(
                $(#[$field_meta])*
                #[inline]
                pub fn $field(&self) -> $ty {
                    crate::field::Field::read(self.bytes.as_ref(), $base + $at)
                }
            )*

            crate::macros::parts! {
                $name, $base;
                $($( $(#[$part_meta])* $part, $range: $offset_ty = $offset_at, $length_ty = $length_at; )*)?
                $($(
                    $(#[$loose_meta])*
                    $loose, $loose_range:
                        $loose_offset_ty = $loose_offset_at, $loose_length_ty = $loose_length_at;
                )*)?
            }
        }

        impl<B: AsMut<[u8]>> $name<B> {
            $(
                #[doc = concat!("Overwrites the field that `", stringify!($field), "` reads.")]
                #[inline]
                pub fn $set(&mut self, value: $ty) {
                    crate::field::Field::write(value, self.bytes.as_mut(), $base + $at);
                }
            )*
        }

        // Variable parts are file content, names and security tokens, so they are not shown.
        impl<B: AsRef<[u8]>> std::fmt::Debug for $name<B> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name))
                    $( .field(stringify!($field), &self.$field()) )*
                    .finish_non_exhaustive()
            }
        }
    };
}

/// Getters of variable parts.
macro_rules! parts {
    (
        $name:ident, $base:expr;
        $(
            $(#[$meta:meta])*
            $part:ident, $range:ident: $offset_ty:ty = $offset_at:literal, $length_ty:ty = $length_at:literal;
        )*
    ) => { $(
        $(#[$meta])*
        #[inline]
        pub fn $part(&self) -> &[u8] {
            crate::field::slice(self.bytes.as_ref(), self.$range())
        }

        #[doc = concat!("Where [`Self::", stringify!($part), "`] is; empty without bytes.")]
        #[inline]
        pub fn $range(&self) -> std::ops::Range<usize> {
            let all = self.bytes.as_ref();
            crate::field::part(
                stringify!($name),
                all,
                Self::FIXED_LEN,
                <$offset_ty as crate::field::Field>::read(all, $base + $offset_at).into(),
                <$length_ty as crate::field::Field>::read(all, $base + $length_at).into(),
            )
            .unwrap_or(0..0)
        }
    )* };
}

pub(crate) use {body, field, flags, number, opaque, parts, record, view};
