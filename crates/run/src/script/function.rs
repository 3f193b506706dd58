//! The functions and operators of pgbench's expressions: names, argument counts, and what they compute.

use super::eval_error::EvalError;
use super::value::Value;
use crate::random::Random;
use crate::random::pgbench as shaped;
use crate::random::zipf::Zipf;

/// Most arguments of `least` and `greatest` (pgbench's limit, too).
pub const ARGUMENTS_MAX: usize = 16;

/// Functions and operators that evaluate all their arguments first. AND, OR and CASE do not and are compiled to jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
    Not,
    Abs,
    Debug,
    Double,
    Exp,
    Greatest,
    HashFnv1a,
    HashMurmur2,
    Int,
    Least,
    Ln,
    Permute,
    Pi,
    Power,
    Random,
    RandomExponential,
    RandomGaussian,
    RandomZipfian,
    Sqrt,
}

/// A function as scripts call it.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: &'static str,
    pub(super) function: Function,
    /// Fewest and most arguments that may be written.
    pub(super) arguments: (usize, usize),
    pub(super) takes: &'static str,
    /// Whether a missing last argument is the variable `default_seed`.
    pub(super) seeded: bool,
}

const fn named(name: &'static str, function: Function, count: usize) -> Named {
    let takes = match count {
        0 => "no argument",
        1 => "one argument",
        2 => "two arguments",
        _ => "three arguments",
    };
    Named { name, function, arguments: (count, count), takes, seeded: false }
}

const fn seeded(name: &'static str, function: Function, count: usize) -> Named {
    let takes =
        if count == 1 { "a value and optionally a seed" } else { "a value, a size and optionally a seed" };
    Named { name, function, arguments: (count, count + 1), takes, seeded: true }
}

const fn variadic(name: &'static str, function: Function) -> Named {
    Named { name, function, arguments: (1, ARGUMENTS_MAX), takes: "one to 16 arguments", seeded: false }
}

pub(super) static FUNCTIONS: &[Named] = &[
    named("abs", Function::Abs, 1),
    named("debug", Function::Debug, 1),
    named("double", Function::Double, 1),
    named("exp", Function::Exp, 1),
    variadic("greatest", Function::Greatest),
    seeded("hash", Function::HashMurmur2, 1),
    seeded("hash_fnv1a", Function::HashFnv1a, 1),
    seeded("hash_murmur2", Function::HashMurmur2, 1),
    named("int", Function::Int, 1),
    variadic("least", Function::Least),
    named("ln", Function::Ln, 1),
    named("mod", Function::Modulo, 2),
    seeded("permute", Function::Permute, 2),
    named("pi", Function::Pi, 0),
    named("pow", Function::Power, 2),
    named("power", Function::Power, 2),
    named("random", Function::Random, 2),
    named("random_exponential", Function::RandomExponential, 3),
    named("random_gaussian", Function::RandomGaussian, 3),
    named("random_zipfian", Function::RandomZipfian, 3),
    named("sqrt", Function::Sqrt, 1),
];

/// The function of that name, in any case.
pub(super) fn find(name: &str) -> Option<&'static Named> {
    FUNCTIONS.iter().find(|function| function.name.eq_ignore_ascii_case(name))
}

/// All names, for messages.
pub(super) fn names() -> String {
    FUNCTIONS.iter().map(|function| function.name).collect::<Vec<_>>().join(" ")
}

/// What a function may touch besides its arguments.
pub(super) struct Surroundings<'a> {
    pub(super) random: &'a mut Random,
    /// The sampler of the last `random_zipfian`, kept because making one costs more than drawing from it.
    pub(super) zipf: &'a mut Option<Zipf>,
    /// Receives what `debug()` is given.
    pub(super) debug: &'a mut dyn FnMut(Value),
}

/// Applies a function to evaluated arguments (as many as its table entry or operator states; the compiler sees to that).
pub(super) fn apply(
    function: Function,
    arguments: &[Value],
    around: &mut Surroundings<'_>,
) -> Result<Value, EvalError> {
    // Most of what scripts do, first.
    if let [Value::Int(left), Value::Int(right)] = *arguments {
        match function {
            Function::Add | Function::Subtract | Function::Multiply => {
                return on_integers(function, left, right);
            }
            Function::Random
                if left <= right && right.checked_sub(left).is_some_and(|span| span < i64::MAX) =>
            {
                return Ok(Value::Int(around.random.between(left, right)));
            }
            _ => {}
        }
    }
    // NULL in, NULL out; only debug() looks at it.
    if function != Function::Debug && arguments.iter().any(|argument| matches!(argument, Value::Null)) {
        return Ok(Value::Null);
    }
    match (function, arguments) {
        (Function::Pi, _) => Ok(Value::Double(core::f64::consts::PI)),
        (Function::Least | Function::Greatest, [first, rest @ ..]) => extremum(function, *first, rest),
        (_, [argument]) => unary(function, *argument, around),
        (_, [left, right]) => binary(function, *left, *right, around),
        (Function::Permute, [value, size, seed]) => {
            let (value, size, seed) = (value.to_int()?, size.to_int()?, seed.to_int()?);
            if size <= 0 {
                return Err(EvalError::PermuteSize);
            }
            Ok(Value::Int(shaped::permute(value, size, seed)))
        }
        (_, [low, high, parameter]) => draw(function, *low, *high, Some(*parameter), around),
        // Unreachable by construction; NULL rather than a panic keeps a compiler slip from stopping a run.
        _ => Ok(Value::Null),
    }
}

fn unary(function: Function, argument: Value, around: &mut Surroundings<'_>) -> Result<Value, EvalError> {
    Ok(match function {
        Function::Not => Value::Bool(!argument.to_bool()?),
        // As in pgbench, the absolute value of the smallest integer is itself.
        Function::Abs => match argument {
            Value::Int(value) => Value::Int(value.wrapping_abs()),
            other => Value::Double(libm::fabs(other.to_double()?)),
        },
        Function::Debug => {
            (around.debug)(argument);
            argument
        }
        Function::Int => Value::Int(argument.to_int()?),
        Function::Double => Value::Double(argument.to_double()?),
        Function::Sqrt => Value::Double(libm::sqrt(argument.to_double()?)),
        Function::Ln => Value::Double(libm::log(argument.to_double()?)),
        Function::Exp => Value::Double(libm::exp(argument.to_double()?)),
        _ => Value::Null,
    })
}

fn binary(
    function: Function,
    left: Value,
    right: Value,
    around: &mut Surroundings<'_>,
) -> Result<Value, EvalError> {
    match function {
        Function::Random => draw(function, left, right, None, around),
        Function::Power => Ok(Value::Double(libm::pow(left.to_double()?, right.to_double()?))),
        Function::HashFnv1a => Ok(Value::Int(shaped::hash_fnv1a(left.to_int()?, right.to_int()?))),
        Function::HashMurmur2 => Ok(Value::Int(shaped::hash_murmur2(left.to_int()?, right.to_int()?))),
        Function::BitAnd
        | Function::BitOr
        | Function::BitXor
        | Function::ShiftLeft
        | Function::ShiftRight => {
            let (left, right) = (left.to_int()?, right.to_int()?);
            Ok(Value::Int(match function {
                Function::BitAnd => left & right,
                Function::BitOr => left | right,
                Function::BitXor => left ^ right,
                // Only the low six bits of the distance count, as on the machines pgbench runs on.
                Function::ShiftLeft => left.wrapping_shl(right as u32),
                _ => left.wrapping_shr(right as u32),
            }))
        }
        Function::Modulo => {
            let (left, right) = (left.to_int()?, right.to_int()?);
            if right == 0 {
                return Err(EvalError::DivisionByZero);
            }
            Ok(Value::Int(left.wrapping_rem(right)))
        }
        _ if matches!(left, Value::Double(_)) || matches!(right, Value::Double(_)) => {
            on_doubles(function, left.to_double()?, right.to_double()?)
        }
        _ => on_integers(function, left.to_int()?, right.to_int()?),
    }
}

fn on_doubles(function: Function, left: f64, right: f64) -> Result<Value, EvalError> {
    Ok(match function {
        Function::Add => Value::Double(left + right),
        Function::Subtract => Value::Double(left - right),
        Function::Multiply => Value::Double(left * right),
        Function::Divide => Value::Double(left / right),
        Function::Equal => Value::Bool(left == right),
        Function::Unequal => Value::Bool(left != right),
        Function::Less => Value::Bool(left < right),
        Function::LessOrEqual => Value::Bool(left <= right),
        Function::Greater => Value::Bool(left > right),
        Function::GreaterOrEqual => Value::Bool(left >= right),
        _ => Value::Null,
    })
}

fn on_integers(function: Function, left: i64, right: i64) -> Result<Value, EvalError> {
    let checked = |result: Option<i64>, what| result.map(Value::Int).ok_or(EvalError::OutOfRange(what));
    match function {
        Function::Add => checked(left.checked_add(right), "add"),
        Function::Subtract => checked(left.checked_sub(right), "sub"),
        Function::Multiply => checked(left.checked_mul(right), "mul"),
        Function::Divide if right == 0 => Err(EvalError::DivisionByZero),
        Function::Divide => checked(left.checked_div(right), "div"),
        Function::Equal => Ok(Value::Bool(left == right)),
        Function::Unequal => Ok(Value::Bool(left != right)),
        Function::Less => Ok(Value::Bool(left < right)),
        Function::LessOrEqual => Ok(Value::Bool(left <= right)),
        Function::Greater => Ok(Value::Bool(left > right)),
        Function::GreaterOrEqual => Ok(Value::Bool(left >= right)),
        _ => Ok(Value::Null),
    }
}

/// `least` and `greatest`: a double if any argument is one, else an integer.
fn extremum(function: Function, first: Value, rest: &[Value]) -> Result<Value, EvalError> {
    let greatest = function == Function::Greatest;
    if matches!(first, Value::Double(_)) || rest.iter().any(|value| matches!(value, Value::Double(_))) {
        let mut best = first.to_double()?;
        for value in rest {
            let value = value.to_double()?;
            // Written as pgbench compares, so that a NaN is kept or passed over in the same places.
            let keep = if greatest { best > value } else { best < value };
            best = if keep { best } else { value };
        }
        return Ok(Value::Double(best));
    }
    let mut best = first.to_int()?;
    for value in rest {
        let value = value.to_int()?;
        best = if greatest { best.max(value) } else { best.min(value) };
    }
    Ok(Value::Int(best))
}

/// The random functions: checks of range and parameter, then the draw.
fn draw(
    function: Function,
    low: Value,
    high: Value,
    parameter: Option<Value>,
    around: &mut Surroundings<'_>,
) -> Result<Value, EvalError> {
    let (low, high) = (low.to_int()?, high.to_int()?);
    if low > high {
        return Err(EvalError::EmptyRange);
    }
    let count = high.checked_sub(low).and_then(|span| span.checked_add(1)).ok_or(EvalError::RangeTooLarge)?;
    let Some(parameter) = parameter else {
        return Ok(Value::Int(around.random.between(low, high)));
    };
    let parameter = parameter.to_double()?;
    Ok(Value::Int(match function {
        Function::RandomGaussian => {
            if parameter.is_nan() || parameter < shaped::GAUSSIAN_PARAMETER_MIN {
                return Err(EvalError::GaussianParameter {
                    value: parameter,
                    least: shaped::GAUSSIAN_PARAMETER_MIN,
                });
            }
            shaped::gaussian(around.random, low, high, parameter)
        }
        Function::RandomZipfian => {
            let (least, most) = (shaped::ZIPFIAN_PARAMETER_MIN, shaped::ZIPFIAN_PARAMETER_MAX);
            if !(least..=most).contains(&parameter) {
                return Err(EvalError::ZipfianParameter { value: parameter, least, most });
            }
            let count = count as u64;
            let fits = |zipf: &Zipf| zipf.count() == count && zipf.exponent() == parameter;
            if !around.zipf.as_ref().is_some_and(fits) {
                *around.zipf = None;
            }
            let sampler = around.zipf.get_or_insert_with(|| Zipf::new(count, parameter));
            shaped::zipfian(around.random, low, sampler)
        }
        _ => {
            if parameter.is_nan() || parameter <= 0.0 {
                return Err(EvalError::ExponentialParameter(parameter));
            }
            shaped::exponential(around.random, low, high, parameter)
        }
    }))
}
