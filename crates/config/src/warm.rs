//! `[[warm]]`: shares that the client-side proxy reads on a schedule.

use std::path::PathBuf;

use crate::reader::{Reader, Section};
use crate::rules::Rules;
use crate::schema;
use crate::share::{ShareLocation, SmbUser};
use crate::units::Size;
use crate::window::TimeWindow;

/// Most `[[warm]]` entries in one configuration.
pub const WARM_MAX: usize = 64;

/// One `[[warm]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warm {
    /// A rule listens for its server.
    pub location: ShareLocation,
    pub user: SmbUser,
    pub password_file: PathBuf,
    pub window: TimeWindow,
    /// Most bytes a second.
    pub rate: Option<Size>,
}

/// `rules` are `None` if they are wrong themselves.
pub(crate) fn build(reader: &mut Reader<'_>, rules: Option<&Rules>) -> Option<Vec<Warm>> {
    let sections = reader.sections("warm", WARM_MAX);
    let built: Vec<_> = sections.iter().map(|section| build_one(reader, section, rules)).collect();
    built.into_iter().collect()
}

fn build_one(reader: &mut Reader<'_>, section: &Section<'_>, rules: Option<&Rules>) -> Option<Warm> {
    let location = reader.parsed::<ShareLocation>(section, &schema::WARM_LOCATION);
    let user = reader.parsed::<SmbUser>(section, &schema::WARM_USER);
    let password_file = reader.path(section, &schema::WARM_PASSWORD_FILE);
    let window = reader.parsed(section, &schema::WARM_WINDOW);
    let rate = reader.size(section, &schema::WARM_RATE);
    if let (Some(location), Some(rules)) = (&location, rules)
        && rules.listener_for(&location.server).is_none()
    {
        let message =
            format!("no rule listens for {:?}, so it cannot be read through the pair", location.server);
        reader.conflict(section, &schema::WARM_LOCATION, message);
    }
    Some(Warm { location: location?, user: user?, password_file: password_file?, window: window?, rate })
}
