//! What one session keeps for its scripts: the variables, and the evaluation stack.

use super::eval_error::EvalError;
use super::names::Slot;
use super::value::Value;
use crate::random::zipf::Zipf;

/// Most bytes of text a variable may hold. A variable carries a key or a name from one statement to the next; a megabyte of it per
/// session and variable is a mistake in the script, and memory must not grow with what a server answers.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Content {
    Unset,
    Value(Value),
    /// Text in the buffer of the same slot.
    Text,
}

/// A variable's content as a statement's parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Parameter<'a> {
    Value(Value),
    Text(&'a [u8]),
}

/// The variables of one session. Setting and reading numbers allocates nothing; text goes into one buffer per variable, which keeps
/// its capacity.
#[derive(Clone, Debug)]
pub struct State {
    contents: Vec<Content>,
    texts: Vec<Vec<u8>>,
    pub(super) stack: Vec<Value>,
    pub(super) zipf: Option<Zipf>,
}

impl State {
    pub(super) fn new(variables: usize, stack_max: usize) -> State {
        State {
            contents: vec![Content::Unset; variables],
            texts: vec![Vec::new(); variables],
            stack: Vec::with_capacity(stack_max),
            zipf: None,
        }
    }

    /// Takes over the variables of `other`, a state of the same mix, into the memory that is already here.
    pub(crate) fn copy_from(&mut self, other: &State) {
        self.contents.clone_from(&other.contents);
        for (mine, theirs) in self.texts.iter_mut().zip(&other.texts) {
            mine.clone_from(theirs);
        }
    }

    /// Sets a variable to a number, a boolean or NULL.
    #[inline]
    pub fn set(&mut self, slot: Slot, value: Value) {
        if let Some(content) = self.contents.get_mut(slot.index()) {
            *content = Content::Value(value);
        }
    }

    /// Sets a variable to text, as `\gset` does with a column's text form.
    ///
    /// # Errors
    /// [`EvalError::TextTooLong`] above [`TEXT_BYTES_MAX`].
    pub fn set_text(&mut self, slot: Slot, text: &[u8]) -> Result<(), EvalError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(EvalError::TextTooLong { bytes: text.len(), limit: TEXT_BYTES_MAX });
        }
        if let (Some(content), Some(buffer)) =
            (self.contents.get_mut(slot.index()), self.texts.get_mut(slot.index()))
        {
            *content = Content::Text;
            buffer.clear();
            buffer.extend_from_slice(text);
        }
        Ok(())
    }

    /// Whether a variable has been set.
    #[must_use]
    pub fn is_set(&self, slot: Slot) -> bool {
        !matches!(self.contents.get(slot.index()), None | Some(Content::Unset))
    }

    /// A variable's content as a statement's parameter.
    ///
    /// # Errors
    /// [`EvalError::Undefined`] where it was never set.
    #[inline]
    pub fn parameter(&self, slot: Slot) -> Result<Parameter<'_>, EvalError> {
        match self.contents.get(slot.index()) {
            Some(Content::Value(value)) => Ok(Parameter::Value(*value)),
            Some(Content::Text) => Ok(Parameter::Text(&self.texts[slot.index()])),
            Some(Content::Unset) | None => Err(EvalError::Undefined(slot)),
        }
    }

    /// A variable's content as an expression reads it: text becomes a number, a boolean or NULL where it looks like one.
    ///
    /// # Errors
    /// [`EvalError::Undefined`] where it was never set, [`EvalError::Malformed`] for other text.
    #[inline]
    pub fn value(&self, slot: Slot) -> Result<Value, EvalError> {
        match self.parameter(slot)? {
            Parameter::Value(value) => Ok(value),
            Parameter::Text(text) => Value::from_text(text).ok_or(EvalError::Malformed(slot)),
        }
    }

    /// Appends a variable's text form, as a parameter in text format: `Ok(false)` and nothing appended for NULL.
    ///
    /// # Errors
    /// [`EvalError::Undefined`] where it was never set.
    #[inline]
    pub fn append_parameter(&self, slot: Slot, out: &mut Vec<u8>) -> Result<bool, EvalError> {
        match self.parameter(slot)? {
            Parameter::Value(Value::Null) => return Ok(false),
            Parameter::Value(value) => value.write_text(out),
            Parameter::Text(text) => out.extend_from_slice(text),
        }
        Ok(true)
    }
}
