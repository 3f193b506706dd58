//! A compiled expression: a flat list of operations for a stack of values, and the machine that runs it.
//!
//! The parser emits operations as it reads, so there is no tree, no recursion at run time and nothing to free: evaluation of
//! numbers allocates nothing once the session's stack has its size (known when compiling).

use super::error::Span;
use super::eval_error::EvalError;
use super::function::{Function, Surroundings, apply};
use super::names::Slot;
use super::state::State;
use super::value::Value;
use crate::random::Random;

/// One operation. Jump targets are indexes into the operations of the same program and always lie ahead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Op {
    /// Pushes a constant.
    Push(Value),
    /// Pushes a variable's value.
    Load(Slot),
    /// Replaces the topmost values by the function's result.
    Call { function: Function, arguments: u8 },
    /// Replaces the topmost value by whether it is just this value (`IS NULL`, `IS TRUE`, `IS FALSE`).
    Is(Value),
    /// After the left side of AND: NULL or false is the answer, jump; true is dropped, the right side follows.
    AndShort(u32),
    /// After the left side of OR: NULL or true is the answer, jump; false is dropped, the right side follows.
    OrShort(u32),
    /// After the right side of AND and OR: it must be boolean or NULL.
    RequireBool,
    /// Drops the topmost value; jumps unless it counts as true.
    JumpUnless(u32),
    /// Jumps.
    Jump(u32),
}

/// A compiled expression.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Program {
    pub(super) ops: Vec<Op>,
    /// For each operation, the text it was made from: only for messages.
    pub(super) spans: Vec<Span>,
    /// How high the stack gets.
    pub(super) stack_max: usize,
}

/// An expression that failed: at which operation, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ProgramError {
    pub(super) op: u32,
    pub(super) error: EvalError,
}

impl Program {
    /// The span of an operation, for messages.
    pub(super) fn span(&self, op: u32) -> Span {
        self.spans.get(op as usize).copied().unwrap_or_default()
    }

    /// Runs the program against a session's variables.
    pub(super) fn evaluate(
        &self,
        state: &mut State,
        random: &mut Random,
        debug: &mut dyn FnMut(Value),
    ) -> Result<Value, ProgramError> {
        let mut stack = std::mem::take(&mut state.stack);
        stack.clear();
        stack.reserve(self.stack_max);
        let mut at = 0_usize;
        let mut result = Ok(());
        while let Some(op) = self.ops.get(at) {
            match self.step(*op, &mut stack, state, random, debug) {
                Ok(None) => at += 1,
                Ok(Some(target)) => at = target as usize,
                Err(error) => {
                    result = Err(ProgramError { op: at as u32, error });
                    break;
                }
            }
        }
        let value = stack.pop().unwrap_or(Value::Null);
        state.stack = stack;
        result.map(|()| value)
    }

    /// Does one operation; answers where to go on, if not at the next one.
    #[inline]
    fn step(
        &self,
        op: Op,
        stack: &mut Vec<Value>,
        state: &mut State,
        random: &mut Random,
        debug: &mut dyn FnMut(Value),
    ) -> Result<Option<u32>, EvalError> {
        // The parser emits balanced code (a property test runs random programs), so the stack is never short; should it be, NULL
        // stands in and nothing panics.
        let top = |stack: &mut Vec<Value>| stack.pop().unwrap_or(Value::Null);
        match op {
            Op::Push(value) => stack.push(value),
            Op::Load(slot) => stack.push(state.value(slot)?),
            Op::Call { function, arguments } => {
                let first = stack.len().saturating_sub(usize::from(arguments));
                let mut around = Surroundings { random, zipf: &mut state.zipf, debug };
                let value = apply(function, &stack[first..], &mut around)?;
                stack.truncate(first);
                stack.push(value);
            }
            Op::Is(expected) => {
                let value = top(stack);
                stack.push(Value::Bool(value == expected));
            }
            Op::AndShort(target) | Op::OrShort(target) => {
                let decisive = matches!(op, Op::OrShort(_));
                match top(stack) {
                    Value::Null => {
                        stack.push(Value::Null);
                        return Ok(Some(target));
                    }
                    value if value.to_bool()? == decisive => {
                        stack.push(value);
                        return Ok(Some(target));
                    }
                    _ => {}
                }
            }
            Op::RequireBool => match stack.last() {
                Some(Value::Null) | None => {}
                Some(value) => {
                    value.to_bool()?;
                }
            },
            Op::JumpUnless(target) => {
                if !top(stack).truth() {
                    return Ok(Some(target));
                }
            }
            Op::Jump(target) => return Ok(Some(target)),
        }
        Ok(None)
    }
}
