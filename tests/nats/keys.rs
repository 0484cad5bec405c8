//! Claims, and lists of keys.

use anyhow::{Context, ensure};
use bus::Claim;
use bytes::Bytes;
use contract::ids::{CallId, TenantId, ToolName};
use contract::streams::Bucket;
use contract::tool::ToolSpec;
use contract::{Json, limits};
use futures::TryStreamExt;
use futures::future::try_join_all;

use crate::nats::world::{World, eventually, key};

pub(crate) async fn claim_by_many_owners_has_one_winner(world: &mut World) -> anyhow::Result<()> {
    let buses = try_join_all((0..3).map(|n| world.connect(n))).await?;
    let session = key("claims")?;
    for n in 1..=10 {
        let call = CallId::tool(1, 1, n);
        let owners = ["a", "b", "c", "d", "e"];
        let claim = |(n, owner): (usize, &&'static str)| buses[n % buses.len()].claim(&session, &call, &[], owner);
        let asked = owners.iter().enumerate().map(claim);
        let claims = try_join_all(asked).await?;
        assert_eq!(claims.iter().filter(|claim| **claim == Claim::Mine).count(), 1);
        for (owner, claim) in owners.iter().zip(&claims) {
            assert_eq!(buses[0].claim(&session, &call, &[], owner).await?, *claim, "asking again changes nothing");
        }
    }
    Ok(())
}

pub(crate) async fn key_lists_are_complete_and_sorted(world: &mut World) -> anyhow::Result<()> {
    let (bus, tenant) = (&world.bus, TenantId::new("acme")?);
    let tool = |n: u32| -> anyhow::Result<ToolSpec> {
        Ok(ToolSpec {
            name: ToolName::new(&format!("t{n:05}"))?,
            description: String::new(),
            parameters: Json::default(),
            effect: contract::tool::EffectClass::Pure,
            approval: contract::tool::ApprovalPolicy::Never,
            timeout_ms: None,
            max_output: None,
            instructions: None,
            version: String::new(),
        })
    };
    let (tools, other) = ((0..1_500).rev().map(tool).collect::<Result<Vec<_>, _>>()?, TenantId::new("other")?);
    try_join_all(tools.iter().map(|tool| bus.put_tool(&tenant, tool))).await?;
    bus.put_tool(&other, &tools[0]).await?;
    bus.delete_tool(&tenant, &ToolName::new("t00007")?).await?;
    // An unreadable entry of a newer version hides no other entry.
    bus.transport().kv_put(Bucket::Tools, "acme.newer", r#"{"shape":"unknown"}"#.into(), None).await?;
    eventually("the list is whole", || async {
        let listed = bus.tools(&tenant).await.unwrap_or_default();
        let names: Vec<&str> = listed.iter().map(|tool| tool.name.as_str()).collect();
        names.len() == 1_499 && names.is_sorted() && !names.contains(&"t00007")
    })
    .await?;
    let pages: Vec<Vec<(String, Bytes)>> = bus.transport().kv_pages(Bucket::Tools, "acme.*").try_collect().await?;
    ensure!(pages.len() > 2 && pages.iter().all(|page| page.len() <= 512), "{} pages", pages.len());
    let mut found = pages.concat();
    found.sort();
    assert_eq!(found, bus.transport().kv_list(Bucket::Tools, "acme.*").await?);
    assert_eq!(bus.tools(&other).await?.len(), 1);
    let created = bus.transport().kv_create(Bucket::Tools, "acme.t00007", "{}".into(), None).await?;
    let created = created.context("a deleted key is free")?;
    assert_eq!(bus.transport().kv_create(Bucket::Tools, "acme.t00007", "{}".into(), None).await?, None);
    let updated = bus.transport().kv_update(Bucket::Tools, "acme.t00007", "[]".into(), created, None).await?;
    let entry = bus.transport().kv_entry(Bucket::Tools, "acme.t00007").await?.context("the entry is gone")?;
    assert_eq!((updated, &entry.1[..]), (Some(entry.0), &b"[]"[..]), "the revision of what was stored");
    assert_eq!(bus.transport().kv_update(Bucket::Tools, "acme.t00007", "{}".into(), created, None).await?, None);
    assert!(limits::CATALOGUE_AGE_MAX.as_secs() >= 10, "entries must not expire under this test");
    Ok(())
}
