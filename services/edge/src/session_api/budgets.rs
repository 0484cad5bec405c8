//! Budgets of the tenant, as a gateway knows them.

use bus::BusError;
use contract::budget::{BudgetReply, BudgetRequest, BudgetStatus};

use super::SessionApi;
use crate::access::ApiCaller;
use crate::api_error::ApiError;
use crate::fair_queue::RequestCost;

impl SessionApi {
    /// Lists the budgets of the tenant in their current periods.
    pub(crate) async fn list_budgets(&self, caller: &ApiCaller) -> Result<Vec<BudgetStatus>, ApiError> {
        self.ask_budgets(caller, BudgetRequest::List { tenant: caller.tenant.clone() }).await
    }

    /// Forgets what was spent and reserved in a budget; returns all budgets of the tenant.
    pub(crate) async fn reset_budget(&self, caller: &ApiCaller, budget: String) -> Result<Vec<BudgetStatus>, ApiError> {
        self.ask_budgets(caller, BudgetRequest::Reset { tenant: caller.tenant.clone(), budget }).await
    }

    async fn ask_budgets(&self, caller: &ApiCaller, request: BudgetRequest) -> Result<Vec<BudgetStatus>, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        match self.bus().ask_budgets(&request).await {
            Ok(BudgetReply::Budgets(budgets)) => Ok(budgets),
            Ok(BudgetReply::Refused { code, message }) => Err(ApiError::new(code, message)),
            Err(BusError::NoResponders { .. } | BusError::Timeout { .. }) => Err(ApiError::no_answer("gateway")),
            Err(error) => Err(error.into()),
        }
    }
}
