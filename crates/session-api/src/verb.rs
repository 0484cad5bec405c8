//! The route of a method as the table has it.

contract::words! {
    /// The verb of a route.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum HttpVerb {
        /// Reads; parameters are in the query.
        Get = "get",
        /// Changes something; parameters are a JSON object in the body.
        Post = "post",
        /// Removes something; parameters are in the query.
        Delete = "delete",
    }

    /// Returns the name in the `OpenAPI` document.
    fn as_str;
}

/// A route of a method as the table has it: verb, path, and a sentence if the method has several.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouteRow {
    pub(crate) verb: HttpVerb,
    pub(crate) path: &'static str,
    pub(crate) about: Option<&'static str>,
}

impl RouteRow {
    /// Returns the names of the variables of the path.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }
}
