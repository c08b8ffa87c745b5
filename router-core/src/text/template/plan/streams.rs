//! Filters that pass items on one by one, where something takes them all at once.

use minijinja::machinery::ast::{self, CallArg};

use super::GiveUp;
use super::eval::list;
use super::expressions::{Expressions, plain_filter, plain_test, positional};
use super::operators::is_true;
use super::run::Run;
use super::strings;
use super::tree::{Expr, Stage};
use crate::text::datum::{Datum, List};

impl<'s> Expressions<'_, 's> {
    /// An expression whose items are all taken at once, so that it may be one of these filters.
    pub(super) fn items(&self, expr: &ast::Expr<'s>) -> Expr {
        match expr {
            ast::Expr::Filter(node) if is_stream(node.name) => {
                self.stream(node).unwrap_or(Expr::GiveUp)
            }
            _ => self.expr(expr),
        }
    }

    fn stream(&self, node: &ast::Filter<'s>) -> Option<Expr> {
        let (source, mut stages) = match self.items(node.expr.as_ref()?) {
            Expr::Stream(source, stages) => (source, stages.into_vec()),
            source => (Box::new(source), Vec::new()),
        };
        stages.push(self.stage(node.name, &node.args)?);
        Some(Expr::Stream(source, stages.into()))
    }

    fn stage(&self, name: &str, args: &[CallArg<'s>]) -> Option<Stage> {
        if let ("map", [CallArg::Kwarg("attribute", name)]) = (name, args) {
            return self.attribute_name(name).map(Stage::Attribute);
        }
        let is_by_attribute = name.ends_with("attr");
        let (attribute, args) = match args.split_first() {
            Some((CallArg::Pos(name), rest)) if is_by_attribute => {
                (Some(self.attribute_name(name)?), rest)
            }
            _ if is_by_attribute => return None,
            _ => (None, args),
        };
        let (named, args) = match args.split_first() {
            Some((CallArg::Pos(ast::Expr::Const(named)), rest)) => (named.value.as_str(), rest),
            Some(_) => return None,
            None => (None, args),
        };
        let args = positional(args, |arg| self.expr(arg))?;
        if name == "map" {
            return Some(Stage::Apply(plain_filter(named?, args.len())?, args));
        }
        let test = match named {
            Some(named) => Some((plain_test(named, args.len())?, args)),
            None => None,
        };
        Some(Stage::Select {
            attribute,
            test,
            keeps: name.starts_with("select"),
        })
    }

    /// A name without dots, which would be a path, and that is no index.
    fn attribute_name(&self, name: &ast::Expr<'s>) -> Option<Box<str>> {
        match self.expr(name) {
            Expr::Text(name) if !name.contains('.') && name.parse::<u64>().is_err() => Some(name),
            _ => None,
        }
    }
}

fn is_stream(name: &str) -> bool {
    matches!(
        name,
        "select" | "reject" | "selectattr" | "rejectattr" | "map"
    )
}

impl<'a> Run<'a> {
    pub(super) fn stream(
        &mut self,
        source: &'a Expr,
        stages: &'a [Stage],
    ) -> Result<Datum<'a>, GiveUp> {
        let source: List<'a> = list(self.eval(source)?)?;
        let mut kept = Vec::new();
        for item in source.iter() {
            self.pay(1)?;
            if let Some(item) = self.through(item, stages)? {
                kept.push(item);
            }
        }
        Ok(Datum::list(kept))
    }

    /// What becomes of an item; none if it is left out.
    fn through(
        &mut self,
        mut item: Datum<'a>,
        stages: &'a [Stage],
    ) -> Result<Option<Datum<'a>>, GiveUp> {
        for stage in stages {
            match stage {
                Stage::Attribute(name) => item = self.item_named(&item, name)?,
                Stage::Apply(filter, args) => item = strings::filter(self, *filter, item, args)?,
                Stage::Select {
                    attribute,
                    test,
                    keeps,
                } => {
                    let value = match attribute {
                        Some(name) => self.item_named(&item, name)?,
                        None => item.clone(),
                    };
                    let is_one = match test {
                        Some((test, args)) => self.tests(*test, &value, args)?,
                        None => is_true(&value)?,
                    };
                    if is_one != *keeps {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(Some(item))
    }

    fn item_named(&mut self, item: &Datum<'a>, name: &str) -> Result<Datum<'a>, GiveUp> {
        match item {
            Datum::Dict(dict) => self.entry(dict, name),
            _ => Err(GiveUp),
        }
    }
}
