//! `top` on a terminal: frames one over the other, and keys to sort them by.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::{cursor, execute, queue, style, terminal};

use super::super::exit::{Exit, Failure};
use super::frame::frame;
use super::{Answers, ROWS_MAX, Sort, View};

/// What the keys do, on the last line.
const HELP: &str = "sort: l LAN  w WAN  r reduction  a age  c client  t target  s state   o order   n not optimised   q quit";

/// The terminal as it is during `top`; dropping it puts it back as it was.
struct Terminal;

impl Terminal {
    fn take() -> io::Result<Terminal> {
        terminal::enable_raw_mode()?;
        let terminal = Terminal;
        execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(terminal)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // There is nobody to tell if the terminal has gone away.
        let _ = execute!(io::stdout(), cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

/// Shows frames until the user ends it.
pub(super) fn run(address: SocketAddr, mut view: View, interval: Duration) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new(Exit::Io, format!("the terminal: {error}"));
    // Asked once before the screen is taken, so that a proxy that does not run is said in the ordinary way.
    Answers::ask(address, &view, 1)?;
    let _terminal = Terminal::take().map_err(failed)?;
    loop {
        draw(address, &view).map_err(failed)?;
        let next = Instant::now() + interval;
        loop {
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() || !event::poll(left).map_err(failed)? {
                break;
            }
            match event::read().map_err(failed)? {
                Event::Key(key) if key.kind == KeyEventKind::Press => {
                    let is_interrupt =
                        key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
                    if is_interrupt || !press(&mut view, key.code) {
                        return Ok(());
                    }
                    break;
                }
                Event::Resize(..) => break,
                _ => {}
            }
        }
    }
}

/// Takes a key; false ends `top`.
fn press(view: &mut View, key: KeyCode) -> bool {
    match key {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('l') => view.sort = Sort::Lan,
        KeyCode::Char('w') => view.sort = Sort::Wan,
        KeyCode::Char('r') => view.sort = Sort::Reduction,
        KeyCode::Char('a') => view.sort = Sort::Age,
        KeyCode::Char('c') => view.sort = Sort::Client,
        KeyCode::Char('t') => view.sort = Sort::Target,
        KeyCode::Char('s') => view.sort = Sort::State,
        KeyCode::Char('o') => view.is_reversed = !view.is_reversed,
        KeyCode::Char('n') => view.not_optimised = !view.not_optimised,
        _ => {}
    }
    true
}

/// A proxy that does not answer for a while is no reason to end: it may be restarting.
fn draw(address: SocketAddr, view: &View) -> io::Result<()> {
    let (columns, height) = terminal::size()?;
    let (columns, height) = (usize::from(columns), usize::from(height));
    let mut lines = match Answers::ask(address, view, height.min(ROWS_MAX)) {
        Ok(answers) => frame(&answers, view, columns, height),
        Err(failure) => vec![isthmus_telemetry::clean(&failure.text, columns)],
    };
    lines.truncate(height.saturating_sub(1));
    let mut out = io::stdout().lock();
    queue!(out, terminal::Clear(terminal::ClearType::All))?;
    for (row, line) in lines.iter().enumerate() {
        queue!(out, cursor::MoveTo(0, row as u16), style::Print(line))?;
    }
    let help = isthmus_telemetry::clean(HELP, columns);
    queue!(out, cursor::MoveTo(0, height.saturating_sub(1) as u16), style::Print(help))?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_turn_and_end() {
        let mut view =
            View { sort: Sort::Lan, is_reversed: false, not_optimised: false, filter: String::new() };
        assert!(press(&mut view, KeyCode::Char('r')) && view.sort == Sort::Reduction);
        assert!(press(&mut view, KeyCode::Char('o')) && view.is_reversed);
        assert!(press(&mut view, KeyCode::Char('n')) && view.not_optimised);
        assert!(press(&mut view, KeyCode::Char('x')) && !press(&mut view, KeyCode::Char('q')));
    }
}
