//! Runs a plan: statements.

use std::rc::Rc;

use super::tree::{
    Block, Entries, Expr, For, Init, Iterable, LoopField, Scoped, Slot, Stmt, Targets,
};
use super::{GiveUp, Plan};
use crate::text::datum::{Context, Datum, List, Text};
use crate::text::strftime::LocalTime;
use crate::text::template::MAX_PROMPT_BYTES;

/// Most statements and operations inside of each other: expressions nest, and macros call each other.
const MAX_DEPTH: usize = 256;

/// Longest range that is made.
const MAX_RANGE: i64 = 100_000;

/// A plan that is running.
pub(super) struct Run<'a> {
    pub(super) plan: &'a Plan,
    pub(super) slots: Vec<Datum<'a>>,
    pub(super) loops: Vec<Loop<'a>>,
    /// The attributes of each namespace.
    pub(super) spaces: Vec<Vec<(&'a str, Datum<'a>)>>,
    /// The text so far. Intermediate strings are made at its end.
    pub(super) out: String,
    pub(super) fuel: u64,
    /// Macros that are known by now.
    pub(super) defined: Vec<usize>,
    /// Macros that are running, the outermost first.
    pub(super) calls: Vec<usize>,
    /// Statements and operations around the current one.
    depth: usize,
    /// Lists and dicts with others inside that were made.
    pub(super) nested: usize,
    pub(super) now: LocalTime,
}

/// What a loop knows of itself.
#[derive(Clone, Debug)]
pub(super) struct Loop<'a> {
    index: usize,
    items: List<'a>,
}

/// Where a block ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Whole,
    Break,
    Continue,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        context: &Context<'a>,
        now: LocalTime,
        capacity: usize,
    ) -> Self {
        let mut slots = vec![Datum::Undefined; plan.slots];
        for (name, slot) in &plan.request {
            if let (Some(value), Some(slot)) = (context.get(name), slots.get_mut(*slot)) {
                *slot = value.clone();
            }
        }
        let idle = Loop {
            index: 0,
            items: List::Json(&[]),
        };
        Self {
            plan,
            slots,
            loops: vec![idle; plan.loops],
            spaces: Vec::new(),
            out: String::with_capacity(capacity),
            fuel: super::FUEL,
            defined: Vec::new(),
            calls: Vec::new(),
            depth: 0,
            nested: 0,
            now,
        }
    }

    /// Pays for work.
    pub(super) fn pay(&mut self, units: usize) -> Result<(), GiveUp> {
        self.fuel = self.fuel.checked_sub(units as u64).ok_or(GiveUp)?;
        Ok(())
    }

    /// Does something inside of what is being done; that takes stack, which is bounded, and work.
    pub(super) fn inside<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, GiveUp>,
    ) -> Result<T, GiveUp> {
        self.pay(1)?;
        if self.depth == MAX_DEPTH {
            return Err(GiveUp);
        }
        self.depth += 1;
        let result = work(self);
        self.depth -= 1;
        result
    }

    /// Appends to the text.
    pub(super) fn push(&mut self, text: &str) -> Result<(), GiveUp> {
        if self.out.len() + text.len() > MAX_PROMPT_BYTES {
            return Err(GiveUp);
        }
        self.out.push_str(text);
        Ok(())
    }

    /// Takes back what `write` appends to the text.
    pub(super) fn capture(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<(), GiveUp>,
    ) -> Result<Text<'a>, GiveUp> {
        let start = self.out.len();
        write(self)?;
        let text: Rc<str> = self.out.get(start..).ok_or(GiveUp)?.into();
        self.out.truncate(start);
        self.pay(text.len() / 64)?;
        Ok(Text::Shared(text))
    }

    pub(super) fn load(&self, slot: Slot) -> Datum<'a> {
        self.slots.get(slot).cloned().unwrap_or(Datum::Undefined)
    }

    pub(super) fn store(&mut self, slot: Slot, value: Datum<'a>) {
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = value;
        }
    }

    /// Runs statements with names of their own.
    pub(super) fn scoped(&mut self, scoped: &'a Scoped) -> Result<(), GiveUp> {
        self.init(&scoped.inits);
        self.whole(&scoped.body)
    }

    /// Runs statements to their end.
    pub(super) fn whole(&mut self, block: &'a Block) -> Result<(), GiveUp> {
        match self.block(block)? {
            End::Whole => Ok(()),
            // Outside of loops these can't be.
            End::Break | End::Continue => Err(GiveUp),
        }
    }

    pub(super) fn init(&mut self, inits: &[Init]) {
        for init in inits {
            let value = init.from.map_or(Datum::Undefined, |slot| self.load(slot));
            self.store(init.slot, value);
        }
    }

    fn block(&mut self, block: &'a Block) -> Result<End, GiveUp> {
        for stmt in block {
            let end = self.stmt(stmt)?;
            if end != End::Whole {
                return Ok(end);
            }
        }
        Ok(End::Whole)
    }

    fn stmt(&mut self, stmt: &'a Stmt) -> Result<End, GiveUp> {
        match stmt {
            Stmt::Raw(text) => {
                self.pay(1)?;
                self.push(text)?;
                Ok(End::Whole)
            }
            _ => self.inside(|run| run.long_stmt(stmt)),
        }
    }

    fn long_stmt(&mut self, stmt: &'a Stmt) -> Result<End, GiveUp> {
        match stmt {
            Stmt::Raw(text) => self.push(text)?,
            Stmt::Emit(expr) => self.emit(expr)?,
            Stmt::If(node) => {
                let is_true = self.test(&node.test)?;
                return self.block(if is_true { &node.then } else { &node.other });
            }
            Stmt::For(node) => self.for_loop(node)?,
            Stmt::Set(slot, value) => {
                let value = self.eval(value)?;
                self.store(*slot, value);
            }
            Stmt::SetAttribute(slot, name, value) => {
                let value = self.eval(value)?;
                let Datum::Namespace(space) = self.load(*slot) else {
                    return Err(GiveUp);
                };
                let space = self.spaces.get_mut(space).ok_or(GiveUp)?;
                match space.iter_mut().find(|(other, _)| *other == &**name) {
                    Some((_, old)) => *old = value,
                    None => space.push((name, value)),
                }
            }
            Stmt::Capture(slot, scoped) => {
                let text = self.capture(|run| run.scoped(scoped))?;
                self.store(*slot, Datum::Text(text));
            }
            Stmt::With(values, scoped) => {
                for (slot, value) in values {
                    let value = self.eval(value)?;
                    self.store(*slot, value);
                }
                self.scoped(scoped)?;
            }
            Stmt::Break => return Ok(End::Break),
            Stmt::Continue => return Ok(End::Continue),
            Stmt::Define(number) => self.defined.push(*number),
            Stmt::GiveUp => return Err(GiveUp),
        }
        Ok(End::Whole)
    }

    fn for_loop(&mut self, node: &'a For) -> Result<(), GiveUp> {
        let mut items = self.items(&node.items)?;
        if let Some(filter) = &node.filter {
            let mut kept = Vec::new();
            for item in items.iter() {
                self.pay(1)?;
                self.assign(&node.targets, item.clone())?;
                if self.test(filter)? {
                    kept.push(item);
                }
            }
            items = List::Shared(kept.into());
        }
        let length = items.len();
        if length == 0 {
            return self.scoped(&node.other);
        }
        for index in 0..length {
            self.pay(1)?;
            let item = items.get(index).ok_or(GiveUp)?;
            *self.loops.get_mut(node.number).ok_or(GiveUp)? = Loop {
                index,
                items: items.clone(),
            };
            self.assign(&node.targets, item)?;
            self.init(&node.body.inits);
            if self.block(&node.body.body)? == End::Break {
                break;
            }
        }
        Ok(())
    }

    fn assign(&mut self, targets: &'a Targets, item: Datum<'a>) -> Result<(), GiveUp> {
        match targets {
            Targets::One(slot) => self.store(*slot, item),
            Targets::Each(slots) => {
                let Datum::List(parts) = item else {
                    return Err(GiveUp);
                };
                if parts.len() != slots.len() {
                    return Err(GiveUp);
                }
                for (slot, part) in slots.iter().zip(parts.iter()) {
                    self.store(*slot, part);
                }
            }
        }
        Ok(())
    }

    fn items(&mut self, items: &'a Iterable) -> Result<List<'a>, GiveUp> {
        Ok(match items {
            Iterable::Value(expr) => match self.eval(expr)? {
                Datum::List(list) => list,
                Datum::Dict(dict) => {
                    self.pay(dict.len())?;
                    List::Shared(dict.iter().map(|(key, _)| Datum::Text(key)).collect())
                }
                Datum::Undefined => List::Json(&[]),
                _ => return Err(GiveUp),
            },
            Iterable::Entries(expr, which) => {
                let dict = match (self.eval(expr)?, which) {
                    (Datum::Dict(dict), _) => dict,
                    (Datum::Undefined, Entries::BothOrUndefined) => return Ok(List::Json(&[])),
                    _ => return Err(GiveUp),
                };
                self.pay(dict.len())?;
                let entries = dict.iter().map(|(key, value)| match which {
                    Entries::Keys => Datum::Text(key),
                    Entries::Values => value,
                    Entries::Both | Entries::BothOrUndefined => {
                        Datum::List(List::Shared([Datum::Text(key), value].into()))
                    }
                });
                List::Shared(entries.collect())
            }
            Iterable::Range(bounds) => self.range(bounds)?,
        })
    }

    fn range(&mut self, bounds: &'a [Expr]) -> Result<List<'a>, GiveUp> {
        let mut numbers = Vec::with_capacity(3);
        for bound in bounds {
            match self.eval(bound)? {
                Datum::Int(number) => numbers.push(number),
                _ => return Err(GiveUp),
            }
        }
        let (start, stop, step) = match *numbers {
            [stop] => (0, stop, 1),
            [start, stop] => (start, stop, 1),
            [start, stop, step] => (start, stop, step),
            _ => return Err(GiveUp),
        };
        let span = stop.checked_sub(start).ok_or(GiveUp)?;
        if step == 0 || span.checked_abs().is_none_or(|span| span > MAX_RANGE) {
            return Err(GiveUp);
        }
        let mut items = Vec::new();
        let mut at = start;
        while (step > 0 && at < stop) || (step < 0 && at > stop) {
            items.push(Datum::Int(at));
            at = at.checked_add(step).ok_or(GiveUp)?;
        }
        self.pay(items.len())?;
        Ok(List::Shared(items.into()))
    }

    /// What a loop tells of itself.
    pub(super) fn loop_field(&self, number: usize, field: LoopField) -> Result<Datum<'a>, GiveUp> {
        let state = self.loops.get(number).ok_or(GiveUp)?;
        let (index, length) = (state.index, state.items.len());
        let number = |number: usize| i64::try_from(number).map(Datum::Int).map_err(|_| GiveUp);
        match field {
            LoopField::Index => number(index + 1),
            LoopField::Index0 => number(index),
            LoopField::ReverseIndex => number(length.saturating_sub(index)),
            LoopField::ReverseIndex0 => number(length.saturating_sub(index + 1)),
            LoopField::First => Ok(Datum::Bool(index == 0)),
            LoopField::Last => Ok(Datum::Bool(index + 1 == length)),
            LoopField::Length => number(length),
            LoopField::Previous => Ok(index
                .checked_sub(1)
                .and_then(|index| state.items.get(index))
                .unwrap_or(Datum::Undefined)),
            LoopField::Next => Ok(state.items.get(index + 1).unwrap_or(Datum::Undefined)),
        }
    }
}
