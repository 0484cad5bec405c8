//! Choice of the cell of a session. A cell is one set of streams.
//!
//! The edge and the command line choose by the same function, and so may any other program: the cells are ranked by
//! rendezvous hashing (highest random weight), so a cell that is added takes sessions from the others, and no session
//! moves between the others.

use std::cmp::Reverse;

use crate::hash::sha256;
use crate::ids::CellName;
use crate::subject::SessionKey;

/// First slot of the commits that say that another cell has a session which was never here, or which was here before.
/// It is beyond the slots of every session, so no page of a session that comes here includes it.
pub const RESERVED_SLOT: u64 = 1 << 40;

/// The weight of a cell for a session: the first 8 bytes, big-endian, of the SHA-256 of
/// `<cell>\n<tenant>\n<session>`. Ids have no line breaks, so no two triples have the same text.
pub fn weight(cell: &CellName, key: &SessionKey) -> u64 {
    let SessionKey { tenant, session } = key;
    let digest = sha256(format!("{cell}\n{tenant}\n{session}").as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(first)
}

/// Ranks cells for a session: the home of its id first, by weight, and by name where weights are equal.
pub fn rank<'a>(cells: impl IntoIterator<Item = &'a CellName>, key: &SessionKey) -> Vec<&'a CellName> {
    let mut ranked: Vec<&CellName> = cells.into_iter().collect();
    ranked.sort_by_cached_key(|cell| (Reverse(weight(cell, key)), *cell));
    ranked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SessionId, TenantId};

    fn cells(names: &[&str]) -> Vec<CellName> {
        names.iter().map(|name| CellName::new(name).unwrap()).collect()
    }

    fn key(tenant: &str, session: &str) -> SessionKey {
        SessionKey { tenant: TenantId::new(tenant).unwrap(), session: SessionId::new(session).unwrap() }
    }

    /// A change of these values would lose every session whose id is not in the cell of its hash.
    #[test]
    fn weights_are_those_of_the_first_version() {
        let rows = [
            ("a", "default", "s1", 0xb144_a714_c835_10f9_u64),
            ("b", "default", "s1", 0x5c9d_db37_78ba_eded),
            ("a", "acme", "s1", 0xe6d0_a3b7_d1da_318a),
            ("eu-west-1", "acme", "01a2143f-7b1c-4f0e-9d0a-000000000001", 0x5fd9_7c59_d92f_46d0),
        ];
        for (cell, tenant, session, expected) in rows {
            let found = weight(&CellName::new(cell).unwrap(), &key(tenant, session));
            assert_eq!(found, expected, "{cell} {tenant} {session}: {found:#018x}");
        }
    }

    #[test]
    fn cell_added_takes_its_share_and_moves_no_id_between_the_others() {
        let (three, four) = (cells(&["a", "b", "c"]), cells(&["a", "b", "c", "d"]));
        let mut taken = 0_u32;
        let mut counts = [0_u32; 3];
        for number in 0..3_000 {
            let key = key("default", &format!("s{number}"));
            let (before, after) = (rank(&three, &key)[0], rank(&four, &key)[0]);
            counts[three.iter().position(|cell| cell == before).unwrap()] += 1;
            taken += u32::from(after.as_str() == "d");
            assert!(before == after || after.as_str() == "d", "{key} moved from {before} to {after}");
        }
        assert!((600..900).contains(&taken), "{taken} of 3000, a quarter is 750");
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }

    #[test]
    fn order_of_the_table_does_not_matter() {
        let (one, other) = (cells(&["a", "b", "c"]), cells(&["c", "a", "b"]));
        for number in 0..100 {
            let key = key("acme", &format!("s{number}"));
            assert_eq!(rank(&one, &key), rank(&other, &key));
        }
    }
}
