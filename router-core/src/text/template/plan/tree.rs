//! What templates are compiled to.

use core::ops::Range;

use crate::text::tojson::Style;

/// Where a value is kept while a template runs.
pub(super) type Slot = usize;

/// Statements, one after the other.
pub(super) type Block = Box<[Stmt]>;

/// Where the first value of a name of a scope comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Init {
    pub(super) slot: Slot,
    /// The slot that it starts with the value of; none: undefined.
    pub(super) from: Option<Slot>,
}

/// Statements with names of their own.
#[derive(Debug)]
pub(super) struct Scoped {
    pub(super) inits: Box<[Init]>,
    pub(super) body: Block,
}

/// A statement.
#[derive(Debug)]
pub(super) enum Stmt {
    Raw(Box<str>),
    Emit(Expr),
    If(Box<If>),
    For(Box<For>),
    Set(Slot, Expr),
    /// `set space.name = value`
    SetAttribute(Slot, Box<str>, Expr),
    /// `set name` … `endset`
    Capture(Slot, Scoped),
    With(Box<[(Slot, Expr)]>, Scoped),
    Break,
    Continue,
    /// A macro is known from here on.
    Define(usize),
    /// Something that isn't known here.
    GiveUp,
}

/// A macro.
#[derive(Debug)]
pub(super) struct Macro {
    /// Where each argument goes, and what it is where it isn't given.
    pub(super) parameters: Box<[(Slot, Option<Expr>)]>,
    pub(super) inits: Box<[Init]>,
    pub(super) body: Block,
    /// Slots of the macro alone.
    pub(super) slots: Range<Slot>,
    /// Loops of the macro alone.
    pub(super) loops: Range<usize>,
}

#[derive(Debug)]
pub(super) struct If {
    pub(super) test: Expr,
    pub(super) then: Block,
    pub(super) other: Block,
}

#[derive(Debug)]
pub(super) struct For {
    /// Number of the loop.
    pub(super) number: usize,
    pub(super) targets: Targets,
    pub(super) items: Iterable,
    pub(super) filter: Option<Expr>,
    pub(super) body: Scoped,
    /// What is done where there is no item.
    pub(super) other: Scoped,
}

#[derive(Debug)]
pub(super) enum Targets {
    One(Slot),
    /// Names that the parts of an item go to.
    Each(Box<[Slot]>),
}

/// What a loop runs through.
#[derive(Debug)]
pub(super) enum Iterable {
    /// A list, or a dict for its keys.
    Value(Expr),
    /// Keys, values or both of a dict.
    Entries(Expr, Entries),
    Range(Box<[Expr]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entries {
    Keys,
    Values,
    /// As pairs.
    Both,
    /// The same for the filter, which takes what is undefined for empty.
    BothOrUndefined,
}

/// An expression.
#[derive(Debug)]
pub(super) enum Expr {
    Undefined,
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Box<str>),
    Slot(Slot),
    Loop(usize, LoopField),
    List(Box<[Expr]>),
    /// A list that can't be changed.
    Tuple(Box<[Expr]>),
    Dict(Box<[(Box<str>, Expr)]>),
    Namespace(Box<[(Box<str>, Expr)]>),
    Attribute(Box<Expr>, Box<str>),
    Item(Box<[Expr; 2]>),
    /// Value, start, stop, step.
    Slice(Box<[Expr; 4]>),
    Not(Box<Expr>),
    Negative(Box<Expr>),
    And(Box<[Expr; 2]>),
    Or(Box<[Expr; 2]>),
    /// Test, value, other value.
    If(Box<[Expr; 3]>),
    Compare(Box<Expr>, Box<[(Comparison, Expr)]>),
    Arithmetic(Arithmetic, Box<[Expr; 2]>),
    /// `a + b + …`
    Sum(Box<[Expr]>),
    /// `a ~ b ~ …`
    Join(Box<[Expr]>),
    ToJson(Box<Expr>, Box<Style>),
    Filter(Filter, Box<Expr>, Box<[Expr]>),
    Test(Test, Box<Expr>, Box<[Expr]>),
    Method(Method, Box<Expr>, Box<[Expr]>),
    /// The items of a list that come through all stages.
    Stream(Box<Expr>, Box<[Stage]>),
    /// A call of a macro; each argument with the parameter that it is for.
    Call(usize, Box<[(usize, Expr)]>),
    /// `strftime_now(format)`
    Time(Box<Expr>),
    /// Something that isn't known here.
    GiveUp,
}

/// What is done to each item of a list.
#[derive(Debug)]
pub(super) enum Stage {
    /// Goes on with what the item has under a name.
    Attribute(Box<str>),
    Apply(Filter, Box<[Expr]>),
    /// Goes on with items for which a test, of an attribute or of the item, comes out so; without a test: whether it is true.
    Select {
        attribute: Option<Box<str>>,
        test: Option<(Test, Box<[Expr]>)>,
        keeps: bool,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum LoopField {
    Index,
    Index0,
    ReverseIndex,
    ReverseIndex0,
    First,
    Last,
    Length,
    Previous,
    Next,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Arithmetic {
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Filter {
    Trim,
    Length,
    Upper,
    Lower,
    String,
    List,
    First,
    Last,
    Join,
    Replace,
    /// `default(other)`, and whether that also stands for what is false.
    Default(bool),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Test {
    Defined,
    Undefined,
    None,
    String,
    Mapping,
    Sequence,
    Iterable,
    Number,
    Integer,
    Boolean,
    True,
    False,
    Compare(Comparison),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Method {
    Strip,
    StripLeft,
    StripRight,
    StartsWith,
    EndsWith,
    Split,
    SplitRight,
    Replace,
    Upper,
    Lower,
    Join,
    Get,
}
