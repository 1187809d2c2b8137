//! The cost of encrypting a stored value and of decrypting it, compared with Node's crypto.

use std::{hint::black_box, time::Instant};

use berth::control::{
    secrets::{SealedPlace, SecretScope, Secrets, key_ring::KeyRing},
    store::Store,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    figures::{Figures, Samples},
    fixtures::{self, Result},
};

/// Bytes of a password, and of the longest value of a credential.
const SIZES: [usize; 2] = [16, 4096];
const SAMPLES: usize = 200;
/// Calls of a sample, which is their mean.
const CALLS: usize = 100;
const BASELINE: &str = "Node crypto, AES-256-GCM";

pub async fn measure(figures: &mut Figures) -> Result<()> {
    let directory = TempDir::new()?;
    let store = Store::open_sqlite(&directory.path().join("berth.db")).await?;
    let ring = KeyRing::parse(&"5".repeat(64).into())?;
    let secrets = Secrets::open(store, ring).await?;
    let scope = SecretScope::Organization;
    let keys = secrets.keys_of(&scope).await?;
    let place = SealedPlace {
        record: "cred_bench",
        purpose: "shop.example",
        field: "password",
        revision: 1,
    };
    for size in SIZES {
        let secret = vec![b'x'; size];
        let sealed = keys.seal(&place, &secret)?;
        let seal = sample(|| {
            black_box(keys.seal(&place, &secret)?);
            Ok(())
        })?;
        let open = sample(|| {
            black_box(keys.open(&place, &sealed)?);
            Ok(())
        })?;
        let node = fixtures::seal_with_node(size, SAMPLES, CALLS).await?;
        for (name, berth) in [("seal", seal), ("open", open)] {
            let baseline = numbers(&node[name])?;
            let name = format!("{name} a value of {size} bytes");
            figures.compare(name, "us", berth, BASELINE, baseline);
        }
    }
    let mut read = Samples::default();
    for _ in 0..SAMPLES {
        let start = Instant::now();
        secrets.keys_of(&scope).await?;
        read.add_us(start.elapsed());
    }
    figures.alone("read and unwrap a data key", "us", read);
    Ok(())
}

fn sample(mut call: impl FnMut() -> Result<()>) -> Result<Samples> {
    let mut samples = Samples::default();
    for _ in 0..SAMPLES {
        let start = Instant::now();
        for _ in 0..CALLS {
            call()?;
        }
        samples.add_us(start.elapsed() / u32::try_from(CALLS)?);
    }
    Ok(samples)
}

fn numbers(list: &Value) -> Result<Samples> {
    let mut samples = Samples::default();
    for number in list.as_array().ok_or("no list of numbers")? {
        samples.add(number.as_f64().ok_or("not a number")?);
    }
    Ok(samples)
}
