//! What on the machine is in the way of a plan. Only reads what `nft`, `ip` and `iptables-legacy-save` have printed.

use std::fmt;

use serde_json::Value;

use crate::plan::{Form, Plan};

/// Conflicts that are told at most.
const CONFLICTS_MAX: usize = 20;

/// Something that uses what the plan needs for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Where it stands.
    pub place: String,
    /// What it does, and the remedy.
    pub what: String,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Collects conflicts up to the limit.
pub(crate) struct Conflicts<'p> {
    plan: &'p Plan,
    pub found: Vec<Conflict>,
}

impl<'p> Conflicts<'p> {
    pub fn new(plan: &'p Plan) -> Conflicts<'p> {
        Conflicts { plan, found: Vec::new() }
    }

    /// Looks through the answer of `nft -j list ruleset`.
    pub fn nftables(&mut self, ruleset: &Value) {
        for rule in items(&ruleset["nftables"]).iter().map(|item| &item["rule"]) {
            let (table, chain) = (word(&rule["table"]), word(&rule["chain"]));
            if table.is_empty() || table == self.plan.table {
                continue;
            }
            let place = format!("nftables, table {} {table}, chain {chain}", word(&rule["family"]));
            let parts = items(&rule["expr"]);
            if parts.iter().any(|part| self.uses_mark(part)) {
                self.mark(&place);
            }
            if self.takes_ports() && parts.iter().any(is_taking) && self.concerns_ports(parts) {
                self.taken(&place);
            }
        }
    }

    /// Looks through the answer of `ip -j rule`.
    pub fn rules(&mut self, option: &str, rules: &Value) {
        if !self.plan.form.routes() {
            return;
        }
        let (mark, table) = (format!("{:#x}", self.plan.mark), self.plan.routing_table.to_string());
        for rule in items(rules) {
            let (its_mark, its_table) = (word(&rule["fwmark"]), word(&rule["table"]));
            let priority = rule["priority"].as_u64().unwrap_or_default();
            let (is_marked, is_tabled) = (its_mark == mark, its_table == table);
            let is_prior = priority == u64::from(self.plan.priority);
            if is_marked && is_tabled && is_prior {
                continue;
            }
            let place = format!("ip {option} rule, priority {priority}");
            if is_marked {
                self.mark(&place);
            } else if is_tabled {
                self.add(&place, format!("leads to routing table {table}; choose another intercept.table"));
            } else if is_prior {
                self.add(
                    &place,
                    "has the priority of the rule to be made; choose another intercept.priority".into(),
                );
            }
        }
    }

    /// Looks through the answer of `ip -j route show table N`.
    pub fn routes(&mut self, option: &str, routes: &Value) {
        for route in items(routes) {
            let is_own = word(&route["type"]) == "local"
                && word(&route["dst"]) == "default"
                && word(&route["dev"]) == "lo";
            if !is_own {
                let place = format!("ip {option} route, table {}", self.plan.routing_table);
                let what =
                    format!("has a route to {} already; choose another intercept.table", word(&route["dst"]));
                self.add(&place, what);
            }
        }
    }

    /// Looks through what `iptables-legacy-save` prints: rules that nft does not see.
    pub fn legacy(&mut self, program: &str, saved: &str) {
        let (hex, decimal) = (format!("{:#x}", self.plan.mark), self.plan.mark.to_string());
        for line in saved.lines().filter(|line| line.starts_with("-A ")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let after = |option: &str| {
                words.iter().position(|word| *word == option).and_then(|at| words.get(at + 1)).copied()
            };
            let place =
                format!("iptables-legacy ({program}), chain {}", words.get(1).copied().unwrap_or_default());
            let marks = ["--mark", "--set-xmark", "--set-mark", "--tproxy-mark", "--restore-mark"];
            let is_mark = |value: &str| {
                let value = value.split('/').next().unwrap_or_default();
                value == hex || value == decimal
            };
            if marks.iter().filter_map(|option| after(option)).any(is_mark) {
                self.mark(&place);
            }
            let taking = after("-j").is_some_and(|target| ["TPROXY", "REDIRECT", "DNAT"].contains(&target));
            let ports = after("--dport").or_else(|| after("--dports")).unwrap_or("0:65535");
            if taking && self.takes_ports() && ports.split(',').any(|range| self.overlaps(range, ':')) {
                self.taken(&place);
            }
        }
    }

    pub fn add(&mut self, place: &str, what: String) {
        let conflict = Conflict { place: place.into(), what };
        if self.found.len() < CONFLICTS_MAX && !self.found.contains(&conflict) {
            self.found.push(conflict);
        }
    }

    fn mark(&mut self, place: &str) {
        self.add(place, format!("uses mark {:#x}; choose another intercept.mark", self.plan.mark));
    }

    fn taken(&mut self, place: &str) {
        let what = "redirects connections to ports that are to be intercepted; remove it, or take these ports out of \
                    intercept.ports";
        self.add(place, what.into());
    }

    fn takes_ports(&self) -> bool {
        self.plan.form != Form::Answers
    }

    /// Whether a part of a rule sets or asks for the mark.
    fn uses_mark(&self, part: &Value) -> bool {
        let mark = u64::from(self.plan.mark);
        let is_mark = |value: &Value| {
            value["meta"]["key"] == "mark"
                || value["ct"]["key"] == "mark"
                || items(&value["&"]).iter().any(|operand| operand["meta"]["key"] == "mark")
        };
        let matched = &part["match"];
        let asks = is_mark(&matched["left"]) && numbers(&matched["right"]).contains(&mark);
        let mangled = &part["mangle"];
        asks || (is_mark(&mangled["key"]) && numbers(&mangled["value"]).contains(&mark))
    }

    /// Whether a rule is about any of the plan's ports; one that names no port is about all.
    fn concerns_ports(&self, parts: &[Value]) -> bool {
        let mut named = parts
            .iter()
            .map(|part| &part["match"])
            .filter(|matched| matched["left"]["payload"]["field"] == "dport")
            .peekable();
        if named.peek().is_none() {
            return true;
        }
        named.any(|matched| {
            let op = word(&matched["op"]);
            let listed = match items(&matched["right"]["set"]) {
                [] => std::slice::from_ref(&matched["right"]),
                listed => listed,
            };
            let concerned = listed.iter().any(|port| match items(&port["range"]) {
                [first, last] => self.overlaps(&format!("{first}-{last}"), '-'),
                _ => port.as_u64().is_none_or(|port| self.overlaps(&port.to_string(), '-')),
            });
            if op == "!=" { !concerned } else { concerned }
        })
    }

    fn overlaps(&self, range: &str, separator: char) -> bool {
        let (first, last) = range.split_once(separator).unwrap_or((range, range));
        let (first, last) = (first.parse().unwrap_or(0_u16), last.parse().unwrap_or(u16::MAX));
        self.plan.ports.iter().any(|(from, to)| first <= *to && *from <= last)
    }
}

/// Whether a part of a rule takes connections away from where they go.
fn is_taking(part: &Value) -> bool {
    let has = |key: &str| part.get(key).is_some();
    let legacy = word(&part["xt"]["name"]);
    has("tproxy") || has("redirect") || has("dnat") || ["TPROXY", "REDIRECT", "DNAT"].contains(&legacy)
}

/// Numbers anywhere within a value.
fn numbers(value: &Value) -> Vec<u64> {
    match value {
        Value::Number(number) => number.as_u64().into_iter().collect(),
        Value::Array(list) => list.iter().flat_map(numbers).collect(),
        Value::Object(map) => map.values().flat_map(numbers).collect(),
        _ => Vec::new(),
    }
}

pub(crate) fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(crate) fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan;
    use serde_json::json;

    fn rule(table: &str, expr: Value) -> Value {
        json!({ "nftables": [
            { "metainfo": {} },
            { "rule": { "family": "ip", "table": table, "chain": "pre", "handle": 4, "expr": expr } },
        ] })
    }

    fn nftables(expr: Value) -> Vec<String> {
        let plan = plan(Form::Tproxy);
        let mut conflicts = Conflicts::new(&plan);
        conflicts.nftables(&rule("other", expr));
        conflicts.found.iter().map(Conflict::to_string).collect()
    }

    fn dport(right: Value) -> Value {
        json!({ "match": { "op": "==", "left": { "payload": { "protocol": "tcp", "field": "dport" } }, "right": right } })
    }

    #[test]
    fn a_mark_in_use_is_found() {
        let set = json!({ "mangle": { "key": { "meta": { "key": "mark" } }, "value": 0x7813 } });
        let found = nftables(json!([set]));
        assert_eq!(
            found,
            ["nftables, table ip other, chain pre: uses mark 0x7813; choose another intercept.mark"]
        );
        let masked = json!({ "match": { "op": "==", "left": { "&": [{ "meta": { "key": "mark" } }, 0xffff] }, "right": 0x7813 } });
        assert_eq!(nftables(json!([masked])).len(), 1);
        let other = json!({ "mangle": { "key": { "meta": { "key": "mark" } }, "value": 1 } });
        assert!(nftables(json!([other])).is_empty());
        let number =
            json!({ "match": { "op": "==", "left": { "meta": { "key": "skuid" } }, "right": 0x7813 } });
        assert!(nftables(json!([number])).is_empty(), "the same number for something else");
    }

    #[test]
    fn another_redirection_of_the_ports_is_found() {
        let tproxy = json!({ "tproxy": { "port": 3129 } });
        assert_eq!(nftables(json!([dport(json!(445)), tproxy])).len(), 1);
        assert_eq!(
            nftables(json!([dport(json!({ "set": [80, { "range": [400, 500] }] })), tproxy])).len(),
            1
        );
        assert_eq!(nftables(json!([{ "redirect": { "port": 1 } }])).len(), 1, "all ports");
        assert!(nftables(json!([dport(json!(80)), tproxy])).is_empty());
        assert!(nftables(json!([dport(json!(445)), { "accept": null }])).is_empty());
        assert_eq!(
            nftables(json!([dport(json!(8005)), { "xt": { "type": "target", "name": "DNAT" } }])).len(),
            1
        );
    }

    #[test]
    fn the_own_table_is_no_conflict() {
        let plan = plan(Form::Tproxy);
        let mut conflicts = Conflicts::new(&plan);
        conflicts.nftables(&rule(plan.table, json!([dport(json!(445)), { "tproxy": { "port": 7813 } }])));
        assert!(conflicts.found.is_empty());
    }

    #[test]
    fn routing_rules_and_routes_are_compared_whole() {
        let plan = plan(Form::Tproxy);
        let found = |rules: Value| {
            let mut conflicts = Conflicts::new(&plan);
            conflicts.rules("-4", &rules);
            conflicts.found.len()
        };
        let own = json!({ "priority": 100, "src": "all", "fwmark": "0x7813", "table": "7813" });
        assert_eq!(found(json!([own, { "priority": 0, "table": "local" }])), 0);
        assert_eq!(found(json!([{ "priority": 100, "src": "all", "table": "main" }])), 1);
        assert_eq!(found(json!([{ "priority": 7, "fwmark": "0x7813", "table": "9" }])), 1);
        assert_eq!(found(json!([{ "priority": 7, "fwmark": "0x1", "table": "7813" }])), 1);
        let mut conflicts = Conflicts::new(&plan);
        conflicts.routes("-4", &json!([{ "type": "local", "dst": "default", "dev": "lo" }]));
        assert!(conflicts.found.is_empty());
        conflicts.routes("-4", &json!([{ "dst": "10.0.0.0/8", "dev": "eth0" }]));
        assert!(conflicts.found[0].to_string().contains("10.0.0.0/8"));
    }

    #[test]
    fn legacy_rules_are_read_too() {
        let plan = plan(Form::Redirect);
        let mut conflicts = Conflicts::new(&plan);
        let saved = "*mangle\n:PREROUTING ACCEPT [0:0]\n\
                     -A PREROUTING -p tcp -m tcp --dport 445 -j TPROXY --on-port 1 --tproxy-mark 0x1/0xffffffff\n\
                     -A PREROUTING -p tcp -m multiport --dports 80,8000:8001 -j REDIRECT --to-ports 3128\n\
                     -A PREROUTING -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 3128\n\
                     -A OUTPUT -j MARK --set-xmark 0x7813/0xffffffff\nCOMMIT\n";
        conflicts.legacy("iptables-legacy-save", saved);
        let places: Vec<_> = conflicts.found.iter().map(|c| c.to_string()).collect();
        assert_eq!(places.len(), 2, "the two redirections are told as one, the mark apart: {places:?}");
        assert!(places[1].contains("chain OUTPUT: uses mark 0x7813"), "{places:?}");
    }
}
