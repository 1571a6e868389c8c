//! What is to be intercepted, and the rules that do it. Nothing here looks at the machine.

use std::fmt::Write as _;
use std::net::IpAddr;

use ipnet::IpNet;

/// Name of the client side's table.
pub const CLIENT_TABLE: &str = "isthmus_client";
/// Name of the server side's table.
pub const SERVER_TABLE: &str = "isthmus_server";

/// Family of the tables: IPv4 and IPv6.
pub(crate) const FAMILY: &str = "inet";
/// The chain that holds what takes new connections. Left at its head, nothing new comes in and what is open goes on.
pub(crate) const TAKING: &str = "taking";
/// Sets of connections that pass by since they are older than the rules, by family.
pub(crate) const PREEXISTING: [&str; 2] = ["preexisting4", "preexisting6"];

/// Connections that one of these sets holds at most.
const PREEXISTING_MAX: usize = 16_384;
/// Time without a packet after which a connection leaves its set.
const PREEXISTING_TIMEOUT: &str = "2m";
/// Connections reset at most in a second, so that clients do not come back all at once.
const RESETS_PER_SECOND: u32 = 200;

/// The first packet of a connection, and no other. Interception that looked at others would cut connections that were
/// there before it.
const FIRST_PACKET: &str = "tcp flags & (fin | syn | rst | ack) == syn";
/// A packet of a connection that has been made and is not being reset.
const LATER_PACKET: &str = "tcp flags & (syn | rst) == 0";

/// How connections are brought to the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// What the machine forwards, kept as it is; the proxy's own connections may bear the client's address. Without a
    /// listener, packets go on as if there were no rule.
    Tproxy,
    /// What the machine forwards, with its destination rewritten. Without a listener, connections are refused.
    Redirect,
    /// What the machine itself connects, with its destination rewritten, but for sockets that bear the mark.
    Local,
    /// Nothing: only answers to connections that the proxy makes under its clients' addresses.
    Answers,
}

/// Everything that the rules depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Name of the nftables table: [`CLIENT_TABLE`] or [`SERVER_TABLE`].
    pub table: &'static str,
    pub form: Form,
    /// Port of the listener.
    pub port: u16,
    /// Interfaces that clients are behind; with [`Form::Local`], that connections leave by. Empty: all but loopback.
    pub interfaces: Vec<String>,
    /// Target ports, from first to last.
    pub ports: Vec<(u16, u16)>,
    /// Clients. Empty: all.
    pub source: Vec<IpNet>,
    /// Targets. Empty: all.
    pub destination: Vec<IpNet>,
    /// Targets that are left alone all the same.
    pub except: Vec<IpNet>,
    /// The mark of packets that belong to the proxy, and with [`Form::Local`] of its own connections. Not 0.
    pub mark: u32,
    /// Number of the routing table that delivers marked packets here.
    pub routing_table: u32,
    /// Priority of the routing rule that leads to it.
    pub priority: u32,
    /// Resets connections that are older than the rules. Only while a process holds the rules.
    pub reset_preexisting: bool,
    /// Whether the machine has IPv6.
    pub ipv6: bool,
}

impl Form {
    /// Whether packets are delivered by their mark.
    pub fn routes(self) -> bool {
        matches!(self, Form::Tproxy | Form::Answers)
    }

    /// Whether connections go on by themselves when nobody listens.
    pub fn falls_through(self) -> bool {
        self.routes()
    }
}

/// A family of addresses, in the words of nft and ip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    /// The option of `ip`.
    pub fn option(self) -> &'static str {
        if self == Family::V4 { "-4" } else { "-6" }
    }

    fn word(self) -> &'static str {
        if self == Family::V4 { "ip" } else { "ip6" }
    }

    fn protocol(self) -> &'static str {
        if self == Family::V4 { "ipv4" } else { "ipv6" }
    }

    fn address_type(self) -> &'static str {
        if self == Family::V4 { "ipv4_addr" } else { "ipv6_addr" }
    }

    fn preexisting(self) -> &'static str {
        if self == Family::V4 { PREEXISTING[0] } else { PREEXISTING[1] }
    }

    fn has(self, net: &IpNet) -> bool {
        matches!((self, net.addr()), (Family::V4, IpAddr::V4(_)) | (Family::V6, IpAddr::V6(_)))
    }
}

impl Plan {
    pub(crate) fn families(&self) -> &'static [Family] {
        if self.ipv6 { &[Family::V4, Family::V6] } else { &[Family::V4] }
    }

    /// Commands of nft that make the table, in order; together they are one transaction. A table of the name is replaced.
    /// With `held`, it belongs to the process that makes it, and goes with that process.
    pub fn nft_commands(&self, held: bool) -> Vec<String> {
        let table = format!("{FAMILY} {}", self.table);
        let owner = if held { "flags owner; " } else { "" };
        let mut commands = vec![format!("add table {table}"), format!("delete table {table}")];
        commands.push(format!("add table {table} {{ {owner}comment \"{}\"; }}", self.comment()));
        if self.form.routes() {
            commands.push(format!("add chain {table} own"));
            // A listener is no connection: it would get what is meant for other machines' ports of its number. Sockets that are
            // being made or have just ended do not know this question, and so pass it.
            commands.push(format!("add rule {table} own socket wildcard 1 return"));
            commands.push(format!("add rule {table} own meta mark set {:#x} accept", self.mark));
            commands.push(chain(&table, "answers", "filter", "prerouting", -150));
            commands.push(format!("add rule {table} answers meta l4proto tcp socket transparent 1 jump own"));
        }
        if self.form == Form::Answers {
            return commands;
        }
        commands.push(format!("add chain {table} {TAKING}"));
        match self.form {
            Form::Redirect => commands.push(chain(&table, "arriving", "nat", "prerouting", -100)),
            Form::Local => commands.push(chain(&table, "arriving", "nat", "output", -100)),
            Form::Tproxy | Form::Answers => {}
        }
        let from = if self.form == Form::Tproxy { "answers" } else { "arriving" };
        if self.form == Form::Local {
            commands.push(format!("add rule {table} {from} meta mark {:#x} return", self.mark));
        }
        commands.push(format!("add rule {table} {from} {FIRST_PACKET} jump {TAKING}"));
        commands.push(format!("add rule {table} {TAKING} fib daddr type local return"));
        for family in self.families() {
            commands.extend(self.taking(&table, *family));
        }
        if held {
            commands.extend(self.passing_by(&table));
        }
        commands
    }

    /// The rule that takes new connections of one family; none if no address of it is meant.
    fn taking(&self, table: &str, family: Family) -> Option<String> {
        let matched = self.matched(family, "dport", "iifname", "oifname")?;
        let verdict = match self.form {
            // The mark comes after: without a listener, `tproxy` ends the rule, and an unmarked packet goes on.
            Form::Tproxy => {
                let (word, port, mark) = (family.word(), self.port, self.mark);
                format!("tproxy {word} to :{port} meta mark set {mark:#x} accept")
            }
            _ => format!("redirect to :{}", self.port),
        };
        Some(format!("add rule {table} {TAKING} {matched} {verdict}"))
    }

    /// Rules about connections that nobody took when they were made: they are counted, and reset if that is wanted.
    fn passing_by(&self, table: &str) -> Vec<String> {
        let mut commands = Vec::new();
        let hook = if self.form == Form::Local { "output" } else { "forward" };
        commands.push(chain(table, "older", "filter", hook, -1));
        if self.form == Form::Local {
            commands.push(format!("add rule {table} older meta mark {:#x} return", self.mark));
        }
        for family in self.families() {
            let Some(matched) = self.matched(*family, "dport", "iifname", "oifname") else { continue };
            let (word, kind, set) = (family.word(), family.address_type(), family.preexisting());
            commands.push(format!(
                "add set {table} {set} {{ type {kind} . inet_service . {kind} . inet_service; size {PREEXISTING_MAX}; \
                 flags dynamic,timeout; timeout {PREEXISTING_TIMEOUT}; }}"
            ));
            commands.push(format!(
                "add rule {table} older {matched} {LATER_PACKET} update @{set} {{ {word} saddr . tcp sport . {word} daddr . \
                 tcp dport }}"
            ));
            if self.reset_preexisting {
                let limit = format!("limit rate {RESETS_PER_SECOND}/second reject with tcp reset");
                commands.push(format!("add rule {table} older {matched} {LATER_PACKET} {limit}"));
                // The server's end would otherwise stay until it says something.
                let back = self.matched(*family, "sport", "oifname", "iifname").filter(|_| hook == "forward");
                commands
                    .extend(back.map(|back| format!("add rule {table} older {back} {LATER_PACKET} {limit}")));
            }
        }
        commands
    }

    /// What a packet is known by. `port` is the side that the target's port is on, and tells the direction: towards the
    /// target (`dport`) or back (`sport`). `arriving` and `leaving` name the interface that clients are behind.
    fn matched(&self, family: Family, port: &str, arriving: &str, leaving: &str) -> Option<String> {
        let of_family = |nets: &[IpNet]| -> Option<Vec<String>> {
            let own: Vec<IpNet> = nets.iter().filter(|net| family.has(net)).copied().collect();
            // Sets of nft refuse networks that lie in each other.
            let own: Vec<String> = IpNet::aggregate(&own).iter().map(IpNet::to_string).collect();
            (nets.is_empty() || !own.is_empty()).then_some(own)
        };
        let (source, destination) = (of_family(&self.source)?, of_family(&self.destination)?);
        let except = of_family(&self.except).unwrap_or_default();
        let (client, target) = if port == "dport" { ("saddr", "daddr") } else { ("daddr", "saddr") };
        let interface = if self.form == Form::Local { leaving } else { arriving };
        let word = family.word();
        let mut text = String::new();
        if self.interfaces.is_empty() {
            text += &format!("{interface} != \"lo\"");
        } else {
            let names: Vec<String> = self.interfaces.iter().map(|name| format!("\"{name}\"")).collect();
            text += &format!("{interface} {}", set(&names));
        }
        // Writing to a string cannot fail.
        let _ = write!(text, " meta nfproto {}", family.protocol());
        for (end, wanted, nets) in
            [(client, "", &source), (target, "", &destination), (target, "!= ", &except)]
        {
            if !nets.is_empty() {
                let _ = write!(text, " {word} {end} {wanted}{}", set(nets));
            }
        }
        let ports: Vec<String> = merged(&self.ports).into_iter().map(shown_range).collect();
        let _ = write!(text, " tcp {port} {}", set(&ports));
        Some(text)
    }

    /// The chain that is made last: when it is there, everything is.
    pub(crate) fn last_chain(&self) -> &'static str {
        if self.form == Form::Answers { "answers" } else { "older" }
    }

    /// Arguments of `ip` for the routing rule and its route in one family, without the verb.
    pub(crate) fn rule_arguments(&self) -> Vec<String> {
        words(&format!("pref {} fwmark {:#x} lookup {}", self.priority, self.mark, self.routing_table))
    }

    pub(crate) fn route_arguments(&self) -> Vec<String> {
        words(&format!("local default dev lo table {}", self.routing_table))
    }

    /// Everything that an installation does, as commands of a shell.
    pub fn script(&self, held: bool) -> String {
        let mut text = String::from("nft -f - <<END\n");
        for command in self.nft_commands(held) {
            text += &command;
            text.push('\n');
        }
        text += "END\n";
        for family in self.families().iter().filter(|_| self.form.routes()) {
            let option = family.option();
            text += &format!("ip {option} rule add {}\n", self.rule_arguments().join(" "));
            text += &format!("ip {option} route add {}\n", self.route_arguments().join(" "));
        }
        text
    }

    /// The table's comment: which plan it was made from.
    pub fn comment(&self) -> String {
        format!("isthmus {:016x}", fingerprint(&format!("{self:?}")))
    }
}

fn chain(table: &str, name: &str, kind: &str, hook: &str, priority: i32) -> String {
    format!("add chain {table} {name} {{ type {kind} hook {hook} priority {priority}; policy accept; }}")
}

fn set(items: &[String]) -> String {
    format!("{{ {} }}", items.join(", "))
}

fn shown_range((first, last): (u16, u16)) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

/// Ranges without those that lie in each other.
fn merged(ranges: &[(u16, u16)]) -> Vec<(u16, u16)> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::new();
    for (first, last) in sorted {
        match merged.last_mut() {
            Some(before) if first <= before.1 => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(String::from).collect()
}

/// FNV-1a, which is the same in every version of the program.
fn fingerprint(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn plan(form: Form) -> Plan {
        Plan {
            table: CLIENT_TABLE,
            form,
            port: 7813,
            interfaces: vec!["lan0".into()],
            ports: vec![(445, 445), (8000, 8010)],
            source: vec!["10.1.0.0/16".parse().unwrap()],
            destination: vec![],
            except: vec!["10.2.0.9/32".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
            mark: 0x7813,
            routing_table: 7813,
            priority: 100,
            reset_preexisting: false,
            ipv6: true,
        }
    }

    fn text(plan: &Plan, held: bool) -> String {
        plan.nft_commands(held).join("\n")
    }

    #[test]
    fn tproxy_marks_after_the_listener_is_found() {
        let text = text(&plan(Form::Tproxy), false);
        let rule = text.lines().find(|line| line.contains("tproxy")).unwrap();
        assert!(rule.contains("tproxy ip to :7813 meta mark set 0x7813 accept"), "{rule}");
        assert!(rule.contains("iifname { \"lan0\" } meta nfproto ipv4 ip saddr { 10.1.0.0/16 }"), "{rule}");
        assert!(rule.contains("ip daddr != { 10.2.0.9/32 } tcp dport { 445, 8000-8010 }"), "{rule}");
        assert!(!text.contains("owner") && !text.contains("older"), "{text}");
    }

    #[test]
    fn a_family_without_a_meant_address_has_no_rule() {
        let mut plan = plan(Form::Redirect);
        assert_eq!(text(&plan, true).matches("redirect to").count(), 1, "all sources are IPv4");
        plan.source.clear();
        assert_eq!(text(&plan, true).matches("redirect to").count(), 2);
        plan.ipv6 = false;
        assert_eq!(text(&plan, true).matches("redirect to").count(), 1);
        plan.destination = vec!["2001:db8::/64".parse().unwrap()];
        assert_eq!(text(&plan, true).matches("redirect to").count(), 0);
    }

    #[test]
    fn only_first_packets_are_taken_in_every_form() {
        for form in [Form::Tproxy, Form::Redirect, Form::Local] {
            let commands = plan(form).nft_commands(true);
            let jumps: Vec<_> = commands.iter().filter(|command| command.contains("jump taking")).collect();
            assert_eq!(jumps.len(), 1);
            assert!(jumps[0].contains(FIRST_PACKET));
            for command in commands.iter().filter(|c| c.contains("tproxy ip") || c.contains("redirect to")) {
                assert!(command.starts_with("add rule inet isthmus_client taking "), "{command}");
            }
        }
    }

    #[test]
    fn own_connections_are_excluded_before_anything_is_redirected() {
        let commands = plan(Form::Local).nft_commands(true);
        let at = |text: &str| commands.iter().position(|command| command.contains(text)).unwrap();
        assert!(at("arriving meta mark 0x7813 return") < at("jump taking"));
        assert!(at("older meta mark 0x7813 return") < at("older oifname"));
        assert!(text(&plan(Form::Local), true).contains("oifname { \"lan0\" }"));
    }

    #[test]
    fn resets_are_for_rules_that_a_process_holds() {
        let mut plan = plan(Form::Tproxy);
        plan.reset_preexisting = true;
        assert!(!text(&plan, false).contains("reject"));
        let held = text(&plan, true);
        assert_eq!(held.matches("reject with tcp reset").count(), 2, "towards both ends: {held}");
        assert!(
            held.contains("older oifname { \"lan0\" } meta nfproto ipv4 ip daddr { 10.1.0.0/16 }"),
            "{held}"
        );
    }

    #[test]
    fn the_outgoing_half_takes_nothing() {
        let text = text(&plan(Form::Answers), true);
        let at = |part: &str| text.find(part).unwrap();
        assert!(at("own socket wildcard 1 return") < at("own meta mark set 0x7813 accept"));
        assert!(text.contains("answers meta l4proto tcp socket transparent 1 jump own"));
        assert!(!text.contains("dport") && !text.contains("taking"), "{text}");
    }

    #[test]
    fn what_overlaps_is_said_once() {
        assert_eq!(merged(&[(445, 445), (400, 450), (440, 460), (80, 80)]), [(80, 80), (400, 460)]);
        let mut plan = plan(Form::Tproxy);
        plan.source = vec!["10.1.0.0/16".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        assert!(text(&plan, false).contains("ip saddr { 10.0.0.0/8 } "));
    }

    #[test]
    fn the_comment_tells_plans_apart() {
        let a = plan(Form::Tproxy);
        let b = Plan { port: 7814, ..a.clone() };
        assert_eq!(a.comment(), a.clone().comment());
        assert_ne!(a.comment(), b.comment());
    }
}
