//! Budgets of the tenant, as a gateway knows them.

use std::sync::Arc;

use contract::budget::{BudgetReply, BudgetRequest, BudgetStatus};
use session_api::{BudgetList, ResetBudgetParams};

use super::SessionApi;
use crate::access::ApiCaller;
use crate::api_error::ApiError;
use crate::cells::{Cell, CellAnswers, missing_error};
use crate::fair_queue::RequestCost;

impl SessionApi {
    /// Lists the budgets of the tenant in their current periods.
    pub async fn list_budgets(&self, caller: &ApiCaller) -> Result<BudgetList, ApiError> {
        self.ask_budgets(caller, BudgetRequest::List { tenant: caller.tenant.clone() }).await
    }

    /// Forgets what was spent and reserved in a budget; returns all budgets of the tenant.
    pub async fn reset_budget(&self, caller: &ApiCaller, params: ResetBudgetParams) -> Result<BudgetList, ApiError> {
        let request = BudgetRequest::Reset { tenant: caller.tenant.clone(), budget: params.budget };
        self.ask_budgets(caller, request).await
    }

    async fn ask_budgets(&self, caller: &ApiCaller, request: BudgetRequest) -> Result<BudgetList, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        let ask = |cell: Arc<Cell>| {
            let request = &request;
            async move {
                match cell.bus.ask_budgets(request).await {
                    Ok(BudgetReply::Budgets(budgets)) => Ok(budgets),
                    Ok(BudgetReply::Refused { code, message }) => Err(ApiError::new(code, message)),
                    Err(error) => Err(ApiError::of_request("gateway", error)),
                }
            }
        };
        // A part of a budget would look like the whole.
        let CellAnswers { answers, missing } = self.cells().ask_all(&caller.tenant, ask).await?;
        if !missing.is_empty() {
            return Err(missing_error(&missing));
        }
        let mut budgets: Vec<BudgetStatus> = Vec::new();
        for budget in answers.into_iter().flat_map(|(_, of_cell)| of_cell) {
            match budgets.iter_mut().find(|known| known.budget == budget.budget) {
                Some(known) => add(known, &budget),
                None => budgets.push(budget),
            }
        }
        Ok(BudgetList { budgets })
    }
}

/// Adds the budget of this name in another cell: each cell has the limit of its gateways.
fn add(sum: &mut BudgetStatus, more: &BudgetStatus) {
    sum.usd_max = sum.usd_max.zip(more.usd_max).map(|(one, other)| one + other);
    sum.tokens_max = sum.tokens_max.zip(more.tokens_max).map(|(one, other)| one + other);
    sum.usd_spent += more.usd_spent;
    sum.tokens_spent += more.tokens_spent;
    sum.usd_reserved += more.usd_reserved;
    sum.tokens_reserved += more.tokens_reserved;
    sum.running += more.running;
}
