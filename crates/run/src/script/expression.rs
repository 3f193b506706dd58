//! From the text of an expression to its [`Program`]: precedence climbing that emits as it goes.
//!
//! Precedence, lowest first (pgbench's grammar, `src/bin/pgbench/exprparse.y`): OR; AND; NOT; IS, ISNULL, NOTNULL; comparisons,
//! which do not chain; `| # & << >>` and the prefix `~`, all of one level; `+ -`; `* / %`; unary plus and minus. A prefix operator
//! swallows everything that binds tighter than itself: `~1 + 2` is `~(1 + 2)`, as it is there.

use super::error::{Problem, Span};
use super::function::{self, Function, Named};
use super::names::{Names, Slot};
use super::program::{Op, Program};
use super::token::{Lexer, Token};
use super::value::Value;

/// Deepest nesting of parentheses, calls, CASE and prefix operators: the parser's only recursion.
pub const DEPTH_MAX: usize = 200;

/// The variable that hashes and permutations are seeded with where the script gives no seed.
pub(super) const DEFAULT_SEED: &str = "default_seed";

mod level {
    pub(super) const OR: u8 = 1;
    pub(super) const AND: u8 = 2;
    pub(super) const NOT: u8 = 3;
    pub(super) const IS: u8 = 4;
    pub(super) const COMPARISON: u8 = 5;
    pub(super) const BITS: u8 = 6;
    pub(super) const SUM: u8 = 7;
    pub(super) const PRODUCT: u8 = 8;
    pub(super) const SIGN: u8 = 9;
}

/// A variable that an expression reads: to be checked when all scripts are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) slot: Slot,
    pub(super) span: Span,
}

/// A problem and where it is.
pub(super) type Misplaced = (Problem, Span);

/// Compiles the expression that starts at `at` and fills the rest of its line. Answers the program, the variables it reads, and
/// where the line ends.
pub(super) fn compile(
    source: &str,
    at: usize,
    names: &mut Names,
) -> Result<(Program, Vec<Use>, usize), Misplaced> {
    let mut lexer = Lexer::new(source, at);
    let (token, span) = lexer.next()?;
    let mut parser = Parser {
        lexer,
        token,
        span,
        names,
        program: Program::default(),
        uses: Vec::new(),
        height: 0,
        depth: 0,
    };
    parser.expression(0)?;
    if parser.token != Token::EndOfLine {
        return Err(parser.unexpected("an operator or the end of the line"));
    }
    let Parser { program, uses, lexer, .. } = parser;
    Ok((program, uses, lexer.position()))
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The word looked at, and its place.
    token: Token<'a>,
    span: Span,
    names: &'a mut Names,
    program: Program,
    uses: Vec<Use>,
    /// How many values are on the stack at this point of the program.
    height: usize,
    depth: usize,
}

impl Parser<'_> {
    fn advance(&mut self) -> Result<Span, Misplaced> {
        let passed = self.span;
        (self.token, self.span) = self.lexer.next()?;
        Ok(passed)
    }

    fn unexpected(&self, expected: &'static str) -> Misplaced {
        let found = match self.token {
            Token::EndOfLine => "the end of the line".to_owned(),
            _ => format!("\"{}\"", self.lexer.text(self.span)),
        };
        (Problem::Unexpected { found, expected }, self.span)
    }

    fn expect(&mut self, token: Token<'static>, expected: &'static str) -> Result<(), Misplaced> {
        if self.token != token {
            return Err(self.unexpected(expected));
        }
        self.advance().map(|_| ())
    }

    /// Appends an operation that takes `takes` values off the stack and leaves `leaves`.
    fn emit(&mut self, op: Op, span: Span, takes: usize, leaves: usize) -> usize {
        self.height = self.height.saturating_sub(takes) + leaves;
        self.program.stack_max = self.program.stack_max.max(self.height);
        self.program.ops.push(op);
        self.program.spans.push(span);
        self.program.ops.len() - 1
    }

    fn call(&mut self, function: Function, arguments: usize, span: Span) {
        self.emit(Op::Call { function, arguments: arguments as u8 }, span, arguments, 1);
    }

    /// Points the jump at `at` to the next operation.
    fn land(&mut self, at: usize) {
        let here = self.program.ops.len() as u32;
        if let Op::AndShort(target) | Op::OrShort(target) | Op::JumpUnless(target) | Op::Jump(target) =
            &mut self.program.ops[at]
        {
            *target = here;
        }
    }

    /// An expression whose operators all bind at least as tight as `lowest`.
    fn expression(&mut self, lowest: u8) -> Result<(), Misplaced> {
        if self.depth >= DEPTH_MAX {
            return Err((Problem::TooDeep { limit: DEPTH_MAX }, self.span));
        }
        self.depth += 1;
        let start = self.span.start;
        self.operand()?;
        // Whether what was just completed is a bare comparison, to which another one may not be chained.
        let mut compared = false;
        while let Some((strength, operator)) = infix(self.token) {
            if strength < lowest {
                break;
            }
            if strength == level::COMPARISON && compared {
                return Err((Problem::ChainedComparison, self.span));
            }
            let operator_span = self.advance()?;
            match operator {
                Infix::Call(function) => {
                    self.expression(strength + 1)?;
                    self.call(function, 2, operator_span);
                }
                Infix::And | Infix::Or => {
                    let jump = if operator == Infix::And { Op::AndShort(0) } else { Op::OrShort(0) };
                    let at = self.emit(jump, Span { start, end: operator_span.end }, 1, 0);
                    let right = self.span.start;
                    self.expression(strength + 1)?;
                    self.emit(Op::RequireBool, Span { start: right, end: self.span.start }, 1, 1);
                    self.land(at);
                }
                Infix::Is => {
                    let negated = self.token == Token::Not;
                    if negated {
                        self.advance()?;
                    }
                    let value = match self.token {
                        Token::Null => Value::Null,
                        Token::Bool(value) => Value::Bool(value),
                        _ => return Err(self.unexpected("NULL, TRUE or FALSE")),
                    };
                    self.advance()?;
                    self.is(value, negated, operator_span);
                }
                Infix::IsNull => self.is(Value::Null, false, operator_span),
                Infix::NotNull => self.is(Value::Null, true, operator_span),
            }
            compared = strength == level::COMPARISON;
        }
        self.depth -= 1;
        Ok(())
    }

    fn is(&mut self, value: Value, negated: bool, span: Span) {
        self.emit(Op::Is(value), span, 1, 1);
        if negated {
            self.call(Function::Not, 1, span);
        }
    }

    fn operand(&mut self) -> Result<(), Misplaced> {
        let span = self.span;
        match self.token {
            Token::Null => self.constant(Value::Null),
            Token::Bool(value) => self.constant(Value::Bool(value)),
            Token::Int(value) => self.constant(Value::Int(value)),
            Token::Double(value) => self.constant(Value::Double(value)),
            Token::IntMinMagnitude => {
                Err((Problem::IntegerRange { text: self.lexer.text(span).to_owned() }, span))
            }
            Token::Variable(name) => {
                self.advance()?;
                self.load(name, span);
                Ok(())
            }
            Token::Open => {
                self.advance()?;
                self.expression(0)?;
                self.expect(Token::Close, "an operator or )")
            }
            Token::Plus => {
                self.advance()?;
                self.expression(level::SIGN)
            }
            Token::Minus => {
                self.advance()?;
                if self.token == Token::IntMinMagnitude {
                    return self.constant(Value::Int(i64::MIN));
                }
                // As in pgbench, -x is 0 - x, which overflows where it should.
                self.emit(Op::Push(Value::Int(0)), span, 0, 1);
                self.expression(level::SIGN)?;
                self.call(Function::Subtract, 2, span);
                Ok(())
            }
            Token::Complement => {
                self.advance()?;
                self.emit(Op::Push(Value::Int(-1)), span, 0, 1);
                self.expression(level::BITS + 1)?;
                self.call(Function::BitXor, 2, span);
                Ok(())
            }
            Token::Not => {
                self.advance()?;
                self.expression(level::NOT)?;
                self.call(Function::Not, 1, span);
                Ok(())
            }
            Token::Case => self.case(),
            Token::Word(name) => {
                self.advance()?;
                let Some(named) = function::find(name) else {
                    let known = function::FUNCTIONS.iter().map(|function| function.name);
                    let similar = super::names::nearest(name, known);
                    return Err((Problem::UnknownFunction { name: name.to_owned(), similar }, span));
                };
                self.arguments(named, span)
            }
            _ => Err(self.unexpected("an expression")),
        }
    }

    fn constant(&mut self, value: Value) -> Result<(), Misplaced> {
        let span = self.advance()?;
        self.emit(Op::Push(value), span, 0, 1);
        Ok(())
    }

    fn load(&mut self, name: &str, span: Span) {
        let slot = self.names.intern(name);
        self.uses.push(Use { slot, span });
        self.emit(Op::Load(slot), span, 0, 1);
    }

    fn arguments(&mut self, named: &Named, span: Span) -> Result<(), Misplaced> {
        self.expect(Token::Open, "( after a function's name")?;
        let mut given = 0;
        while self.token != Token::Close {
            if given > 0 {
                self.expect(Token::Comma, "a comma, an operator or )")?;
            }
            self.expression(0)?;
            given += 1;
        }
        let whole = Span { start: span.start, end: self.span.end };
        self.advance()?;
        let (fewest, most) = named.arguments;
        if given < fewest || given > most {
            return Err((Problem::ArgumentCount { function: named.name, takes: named.takes, given }, whole));
        }
        if named.seeded && given == fewest {
            self.load(DEFAULT_SEED, span);
            given += 1;
        }
        self.call(named.function, given, whole);
        Ok(())
    }

    /// `CASE WHEN a THEN b ... [ELSE c] END`: conditions are tried in order, only the chosen branch is evaluated.
    fn case(&mut self) -> Result<(), Misplaced> {
        let span = self.advance()?;
        let below = self.height;
        let mut to_end = Vec::new();
        if self.token != Token::When {
            return Err(self.unexpected("WHEN"));
        }
        while self.token == Token::When {
            let when = self.advance()?;
            self.expression(0)?;
            let skip = self.emit(Op::JumpUnless(0), when, 1, 0);
            self.expect(Token::Then, "an operator or THEN")?;
            self.expression(0)?;
            to_end.push(self.emit(Op::Jump(0), when, 0, 0));
            self.land(skip);
            // Only one of the branches runs: the next one starts from the same height.
            self.height = below;
        }
        if self.token == Token::Else {
            self.advance()?;
            self.expression(0)?;
        } else {
            self.emit(Op::Push(Value::Null), span, 0, 1);
        }
        self.expect(Token::End, "an operator, WHEN, ELSE or END")?;
        for jump in to_end {
            self.land(jump);
        }
        Ok(())
    }
}

/// What stands between two operands, or behind one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Infix {
    Call(Function),
    And,
    Or,
    Is,
    IsNull,
    NotNull,
}

fn infix(token: Token<'_>) -> Option<(u8, Infix)> {
    Some(match token {
        Token::LogicalOr => (level::OR, Infix::Or),
        Token::LogicalAnd => (level::AND, Infix::And),
        Token::Is => (level::IS, Infix::Is),
        Token::IsNull => (level::IS, Infix::IsNull),
        Token::NotNull => (level::IS, Infix::NotNull),
        Token::Less => (level::COMPARISON, Infix::Call(Function::Less)),
        Token::LessOrEqual => (level::COMPARISON, Infix::Call(Function::LessOrEqual)),
        Token::Greater => (level::COMPARISON, Infix::Call(Function::Greater)),
        Token::GreaterOrEqual => (level::COMPARISON, Infix::Call(Function::GreaterOrEqual)),
        Token::Equal => (level::COMPARISON, Infix::Call(Function::Equal)),
        Token::Unequal => (level::COMPARISON, Infix::Call(Function::Unequal)),
        Token::And => (level::BITS, Infix::Call(Function::BitAnd)),
        Token::Or => (level::BITS, Infix::Call(Function::BitOr)),
        Token::Xor => (level::BITS, Infix::Call(Function::BitXor)),
        Token::ShiftLeft => (level::BITS, Infix::Call(Function::ShiftLeft)),
        Token::ShiftRight => (level::BITS, Infix::Call(Function::ShiftRight)),
        Token::Plus => (level::SUM, Infix::Call(Function::Add)),
        Token::Minus => (level::SUM, Infix::Call(Function::Subtract)),
        Token::Star => (level::PRODUCT, Infix::Call(Function::Multiply)),
        Token::Slash => (level::PRODUCT, Infix::Call(Function::Divide)),
        Token::Percent => (level::PRODUCT, Infix::Call(Function::Modulo)),
        _ => return None,
    })
}
