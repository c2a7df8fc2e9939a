//! bascule run call.wasm --task demo
mod bascule;

fn main() -> Result<(), bascule::Errno> {
    let notes = bascule::Server::open("notes")?;
    println!("{}", notes.call("read_note", r#"{"name": "welcome"}"#)?);
    Ok(())
}
