//! Disks that fill: an index that stayed behind.

use crate::ground::Ground;
use crate::island::{Own, alone};
use std::fs;
use std::time::Duration;

#[test]
fn an_index_stays_behind_on_a_full_disk() {
    alone(Own::Mounts, &[], &["CAP-01"], |island| {
        let (small, large) =
            (island.file_system("small", 48, &[], "")?, island.file_system("large", 96, &[], "")?);
        let ground = Ground::new(&[]);
        ground.tablespace("small", &small);
        ground.tablespace("large", &large);
        ground.sql(
            "CREATE TABLE moved (id int PRIMARY KEY USING INDEX TABLESPACE small, v text) TABLESPACE small;
             INSERT INTO moved SELECT i, repeat('x', 200) FROM generate_series(1, 20000) i; ANALYZE moved;",
        );
        // What fills it is not ours to remove.
        fs::write(small.join("ballast"), vec![0x55; 32 << 20]).map_err(|error| error.to_string())?;
        let _load = ground.repeat("SELECT v FROM moved WHERE id = 7", Duration::from_millis(20));
        ground.watch("together").is_silent(&["CAP-01"]);
        ground.sql("ALTER TABLE moved SET TABLESPACE large");
        let fired = ground.watch("left").until(&["CAP-01"]);
        let command = fired["CAP-01"]["remedy"]["commands"][0].as_str().unwrap_or("").to_string();
        // What the finding advises is what helps.
        ground.sql(&command);
        ground.watch("moved").is_silent(&["CAP-01"]);
        Ok(())
    });
}
