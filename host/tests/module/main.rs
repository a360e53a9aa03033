//! The module runtime on real guests: what loads, what is refused, and what each limit does to a call and to the calls
//! beside it.

mod cache;
mod grants;
mod limits;
mod load;
mod sandbox;
mod support;
mod webapp;
