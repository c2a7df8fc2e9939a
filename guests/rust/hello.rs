//! bascule run hello.wasm --arg Ada
mod bascule;

fn main() {
    let name = std::env::args().nth(1).unwrap_or("world".to_string());
    println!("Hello from Rust, {name}!");
    bascule::log("the guest has greeted");
}
