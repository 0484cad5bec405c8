//! The table of cells: which there are, and which of them a tenant uses. It is configuration, and nothing else decides.

use std::collections::BTreeMap;

use bus::NatsConfig;
use contract::limits::CELLS_MAX;
use contract::subject::SessionKey;
use contract::{CellName, TenantId, cell};
use schemars::JsonSchema;
use serde::Deserialize;

/// A cell: a set of streams, with services of its own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "cell")]
pub struct CellConfig {
    /// Name of the cell: 1 to 32 of `a-z 0-9 -`. The hash of a session includes it, so it never changes.
    #[schemars(with = "String")]
    pub name: CellName,
    /// Connection to the NATS servers of the cell.
    pub nats: NatsConfig,
}

/// The table of cells of an edge or a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellTable {
    /// Without a table one cell, whose connection the caller has.
    names: Vec<CellName>,
    cells: Vec<CellConfig>,
    tenants: BTreeMap<TenantId, Vec<CellName>>,
}

impl CellTable {
    /// Checks a table. An empty one stands for one cell, that of the section `nats`.
    pub fn new(cells: &[CellConfig], tenants: &BTreeMap<TenantId, Vec<CellName>>) -> Result<Self, String> {
        if cells.len() > CELLS_MAX {
            return Err(format!("edge.cells has {} cells, at most {CELLS_MAX} are allowed", cells.len()));
        }
        for (index, cell) in cells.iter().enumerate() {
            let NatsConfig { url, credentials, .. } = &cell.nats;
            for other in &cells[..index] {
                if other.name == cell.name {
                    return Err(format!("edge.cells has two cells of the name {}: rename one", cell.name));
                }
                if (&other.nats.url, &other.nats.credentials) == (url, credentials) {
                    return Err(format!(
                        "edge.cells: {} and {} have the same url and credentials, so they are one set of streams: \
                         remove one",
                        other.name, cell.name
                    ));
                }
            }
        }
        let names = cells.iter().map(|cell| cell.name.clone()).collect();
        let table = Self { names, cells: cells.to_vec(), tenants: tenants.clone() };
        for (tenant, names) in tenants {
            if names.is_empty() {
                return Err(format!("edge.tenant_cells.{tenant} is empty: name a cell, or remove the tenant"));
            }
            for (index, name) in names.iter().enumerate() {
                if table.find(name).is_none() {
                    let known: Vec<&str> = table.names().map(CellName::as_str).collect();
                    let known = known.join(", ");
                    return Err(format!("edge.tenant_cells.{tenant} names the cell {name}; edge.cells has [{known}]"));
                }
                if names[..index].contains(name) {
                    return Err(format!("edge.tenant_cells.{tenant} names the cell {name} twice"));
                }
            }
        }
        Ok(table)
    }

    /// The table of one cell.
    pub(crate) fn single(name: CellName) -> Self {
        Self { names: vec![name], cells: Vec::new(), tenants: BTreeMap::new() }
    }

    /// The cells in the order of the table; none if there is no table.
    pub fn cells(&self) -> &[CellConfig] {
        &self.cells
    }

    /// The names of all cells.
    pub fn names(&self) -> impl Iterator<Item = &CellName> {
        self.names.iter()
    }

    /// Finds a cell by its name.
    pub fn find(&self, name: &CellName) -> Option<&CellConfig> {
        self.cells.iter().find(|cell| cell.name == *name)
    }

    /// The cells that a tenant uses: all of them, unless the table says otherwise.
    pub fn cells_of<'a>(&'a self, tenant: &TenantId) -> Vec<&'a CellName> {
        match self.tenants.get(tenant) {
            Some(names) => names.iter().collect(),
            None => self.names().collect(),
        }
    }

    /// The cells that a session may be in, the home of its id first.
    pub fn rank<'a>(&'a self, key: &SessionKey) -> Vec<&'a CellName> {
        cell::rank(self.cells_of(&key.tenant), key)
    }
}

#[cfg(test)]
mod tests {
    use contract::SessionId;

    use super::*;

    fn name(name: &str) -> CellName {
        CellName::new(name).unwrap()
    }

    fn cell(name_text: &str, url: &str) -> CellConfig {
        CellConfig { name: name(name_text), nats: NatsConfig { url: url.to_owned(), ..NatsConfig::default() } }
    }

    fn tenants(rows: &[(&str, &[&str])]) -> BTreeMap<TenantId, Vec<CellName>> {
        let row = |(tenant, cells): &(&str, &[&str])| {
            (TenantId::new(tenant).unwrap(), cells.iter().map(|cell| name(cell)).collect())
        };
        rows.iter().map(row).collect()
    }

    #[test]
    fn table_with_a_mistake_is_refused_with_its_name() {
        let two = [cell("a", "nats://a:4222"), cell("b", "nats://b:4222")];
        let check = |cells: &[CellConfig], rows: &[(&str, &[&str])], expected: &str| {
            let refused = CellTable::new(cells, &tenants(rows)).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        };
        assert!(CellTable::new(&two, &tenants(&[("acme", &["b"])])).is_ok());
        check(&[cell("a", "nats://a:4222"), cell("a", "nats://b:4222")], &[], "two cells of the name a");
        check(&[cell("a", "nats://a:4222"), cell("b", "nats://a:4222")], &[], "the same url and credentials");
        check(&two, &[("acme", &[])], "edge.tenant_cells.acme is empty");
        check(&two, &[("acme", &["c"])], "names the cell c; edge.cells has [a, b]");
        check(&two, &[("acme", &["b", "b"])], "names the cell b twice");
        check(&[], &[("acme", &["a"])], "edge.cells has []");
        let many: Vec<CellConfig> =
            (0..=CELLS_MAX).map(|number| cell(&format!("c{number}"), &format!("nats://c{number}"))).collect();
        check(&many, &[], "at most 64 are allowed");
    }

    #[test]
    fn tenant_uses_its_cells_and_another_one_all_of_them() {
        let cells = [cell("a", "nats://a"), cell("b", "nats://b"), cell("c", "nats://c")];
        let table = CellTable::new(&cells, &tenants(&[("acme", &["c", "b"])])).unwrap();
        let key = |tenant: &str, session: String| SessionKey {
            tenant: TenantId::new(tenant).unwrap(),
            session: SessionId::new(&session).unwrap(),
        };
        let homes = |tenant: &str| {
            let all = (0..64).map(|number| table.rank(&key(tenant, format!("s{number}")))[0].to_string());
            all.collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(
            (homes("acme"), homes("other")),
            (vec!["b".into(), "c".into()], vec!["a".into(), "b".into(), "c".into()])
        );
    }
}
