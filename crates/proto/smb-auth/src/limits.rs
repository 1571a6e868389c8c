//! Every limit of this crate, in one place.

/// Longest security buffer of one SESSION_SETUP: its length field has 16 bits (MS-SMB2 2.2.5).
pub const TOKEN_BYTES_MAX: usize = 65_535;
/// Mechanisms read from one NegTokenInit; clients offer at most five or six.
pub const MECHANISMS_MAX: usize = 16;
/// Attribute-value pairs read from one NTLMv2 response.
pub const AV_PAIRS_MAX: usize = 64;
/// UTF-16 code units of one user, domain, workstation or target name.
pub const NAME_UNITS_MAX: usize = 1_024;
/// Components of one Kerberos principal name.
pub const COMPONENTS_MAX: usize = 8;
/// Elements looked at in a ticket's authorization data, nested ones included.
pub const AUTHORIZATION_ELEMENTS_MAX: usize = 32;
/// Buffers of one PAC.
pub const PAC_BUFFERS_MAX: usize = 32;
/// Group memberships and extra SIDs read from one PAC, each.
pub const PAC_GROUPS_MAX: usize = 4_096;
/// NT hashes tried for one authentication.
pub const HASHES_TRIED_MAX: usize = 32;
/// Service keys tried on one ticket.
pub const SERVICE_KEYS_TRIED_MAX: usize = 64;
/// Size of one keytab.
pub const KEYTAB_BYTES_MAX: usize = 32 << 20;
/// Entries of one keytab: a whole domain with some history.
pub const KEYTAB_ENTRIES_MAX: usize = 300_000;
/// Size of one password hash file.
pub const PASSWORD_FILE_BYTES_MAX: usize = 64 << 20;
/// Accounts in one password hash file.
pub const PASSWORD_FILE_ENTRIES_MAX: usize = 500_000;
/// Length of one line of a password hash file.
pub const PASSWORD_FILE_LINE_BYTES_MAX: usize = 4_096;
