//! Claims of the calls and gates that a program answers, so that two turns of one session do not perform a call twice.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// Answered calls that are remembered. A turn whose events lag behind may still come to one of them.
const ANSWERED_MAX: usize = 1_024;

/// The calls and gates of a session that this program answers or has answered.
#[derive(Debug, Default)]
pub(crate) struct CallClaims(Mutex<Claims>);

#[derive(Debug, Default)]
struct Claims {
    running: HashSet<String>,
    answered: VecDeque<String>,
}

/// The right to answer one call; dropping it without an answer gives the right back.
#[derive(Debug)]
pub(crate) struct CallClaim {
    claims: Arc<CallClaims>,
    id: String,
}

impl CallClaims {
    /// Claims a call, unless another turn performs it or it was answered.
    pub(crate) fn claim(self: &Arc<Self>, id: &str) -> Option<CallClaim> {
        let mut claims = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = !claims.answered.iter().any(|answered| answered == id) && claims.running.insert(id.to_owned());
        is_free.then(|| CallClaim { claims: self.clone(), id: id.to_owned() })
    }

    /// Notes that a call has its answer.
    pub(crate) fn finish(&self, id: &str) {
        let mut claims = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if claims.answered.iter().any(|answered| answered == id) {
            return;
        }
        if claims.answered.len() == ANSWERED_MAX {
            claims.answered.pop_front();
        }
        claims.answered.push_back(id.to_owned());
    }
}

impl CallClaim {
    /// Notes that the call has its answer.
    pub(crate) fn finish(self) {
        self.claims.finish(&self.id);
    }
}

impl Drop for CallClaim {
    fn drop(&mut self) {
        self.claims.0.lock().unwrap_or_else(PoisonError::into_inner).running.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_is_claimed_once_until_it_is_given_back() {
        let claims = Arc::new(CallClaims::default());
        let first = claims.claim("a").unwrap();
        assert!(claims.claim("a").is_none() && claims.claim("b").is_some());
        drop(first);
        claims.claim("a").unwrap().finish();
        assert!(claims.claim("a").is_none(), "it has its answer");
        claims.finish("c");
        assert!(claims.claim("c").is_none(), "somebody else answered it");
        for number in 0..=ANSWERED_MAX {
            claims.finish(&number.to_string());
        }
        assert!(claims.claim("a").is_some(), "it was forgotten");
    }
}
