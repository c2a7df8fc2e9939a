//! Bascule's host calls for guests in Rust: those that the samples need.

#![allow(dead_code)]

mod host {
    #[link(wasm_import_module = "bascule")]
    extern "C" {
        pub fn log(level: i32, text: *const u8, length: usize) -> i32;
        pub fn mcp_open(server: *const u8, length: usize) -> i32;
        pub fn mcp_call_tool(
            fd: i32,
            tool: *const u8,
            tool_length: usize,
            arguments: *const u8,
            arguments_length: usize,
            out: *mut u8,
            length: *mut u32,
        ) -> i32;
        pub fn mcp_close(fd: i32) -> i32;
    }
}

const ENOSPC: i32 = 28;
const INFO: i32 = 2;

/// The number of an error, as Linux has it: 13 is EACCES.
#[derive(Debug, PartialEq)]
pub struct Errno(pub i32);

fn checked(code: i32) -> Result<i32, Errno> {
    if code < 0 { Err(Errno(-code)) } else { Ok(code) }
}

pub fn log(text: &str) {
    unsafe { host::log(INFO, text.as_ptr(), text.len()) };
}

/// A server of the task, open until it is dropped.
pub struct Server(i32);

impl Server {
    pub fn open(name: &str) -> Result<Server, Errno> {
        checked(unsafe { host::mcp_open(name.as_ptr(), name.len()) }).map(Server)
    }

    /// Call a tool with a JSON object; what it answers is JSON, errors too.
    pub fn call(&self, tool: &str, arguments: &str) -> Result<String, Errno> {
        let mut out = vec![0u8; 4096];
        loop {
            let mut length = out.len() as u32;
            let code = unsafe {
                host::mcp_call_tool(
                    self.0,
                    tool.as_ptr(),
                    tool.len(),
                    arguments.as_ptr(),
                    arguments.len(),
                    out.as_mut_ptr(),
                    &mut length,
                )
            };
            if code == -ENOSPC && length as usize > out.len() {
                out.resize(length as usize, 0); // the result waits: the tool does not run again
                continue;
            }
            out.truncate(checked(code)? as usize);
            return Ok(String::from_utf8_lossy(&out).into_owned());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        unsafe { host::mcp_close(self.0) };
    }
}
