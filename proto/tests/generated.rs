//! The generated code against `ailoop.proto`.

use std::path::Path;

use prost::Message as _;

#[test]
#[allow(clippy::disallowed_methods, reason = "the variable that writes golden files in every package")]
fn generated_code_is_that_of_the_proto_file() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = tempfile::tempdir()?;
    let descriptors = protox::compile(["ailoop/v2/ailoop.proto"], [root])?;
    let compiled = descriptors.encode_to_vec();
    let mut config = tonic_prost_build::Config::new();
    config.enable_type_names();
    let generator = tonic_prost_build::configure().emit_rerun_if_changed(false).out_dir(out.path());
    generator.compile_fds_with_config(descriptors, config)?;
    let code = std::fs::read_to_string(out.path().join("ailoop.v2.rs"))?;
    let (code_path, descriptors_path) = (root.join("src/generated.rs"), root.join("src/descriptors.bin"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(code_path, code)?;
        std::fs::write(descriptors_path, compiled)?;
        return Ok(());
    }
    let is_current = std::fs::read_to_string(code_path)? == code && std::fs::read(descriptors_path)? == compiled;
    assert!(is_current, "src/generated.rs is stale: run UPDATE_GOLDEN=1 cargo test -p ailoop-proto");
    Ok(())
}
