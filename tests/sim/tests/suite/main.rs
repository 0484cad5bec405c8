//! The simulation: the pure loop (ring 2), and the services (ring 3).

mod ring2;
mod ring3;
