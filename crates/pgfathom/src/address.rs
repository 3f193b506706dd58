//! From the connection flags to the address of the target.

use crate::failure::Failure;
use crate::flags::Connection;
use app::connection::Address;
use connect::conninfo::Request;

impl Connection {
    /// Where the target is, after the flags, the environment and the files of libpq.
    ///
    /// # Errors
    /// When an option of the connection is wrong or contradicts another.
    pub fn address(&self) -> Result<Address, Failure> {
        match &self.cluster {
            Some(file) => Address::of_file(file, self.username.clone(), self.dbname.clone()),
            None => Address::resolve(&Request {
                host: self.host.clone(),
                port: self.port.clone(),
                user: self.username.clone(),
                dbname: self.dbname.clone(),
                target: self.target.clone(),
            }),
        }
    }
}
