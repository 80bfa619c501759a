"""Render a conversation as a prompt, with the grammar and the parser for the text that the model generates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from engine import GenerationRequest, Grammar, GrammarKind, Reasoning, RequestError, TextPrompt, text_of
from gateway.chat.control_names import ControlNames
from gateway.chat.formats import create, recognize
from gateway.chat.formats.lark import embedded
from gateway.chat.formats.signature import signature
from gateway.chat.masking import Change, Mask, Survey, change_message, change_tool, change_value
from gateway.chat.parsing import ParserKey
from gateway.chat.reasoning import opened_reasoning, reasoning_to_continue
from gateway.chat.template import ChatTemplate, to_json
from gateway.chat.template_capabilities import TemplateMessage, detect_capabilities, with_instructions
from gateway.chat.template_key import TemplateKey
from gateway.chat.template_variables import with_fitting_effort, with_other_names
from gateway.chat.tools import Tool, ToolChoice

_CUT = "\ue000 the text goes on here \ue000"
"""Marks the end of the message to continue. It has private-use characters, which no template looks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Messages, tools, and the constraints on the model's answer."""

    messages: tuple[TemplateMessage, ...]
    """Messages in OpenAI's chat shape, as in `TemplateMessage`."""
    tools: tuple[Tool, ...] = ()
    """Tools that the model may call."""
    tool_choice: ToolChoice = "auto"
    """Demand for a tool call; "none" hides the tools."""
    parallel_tool_calls: bool = True
    """Allow several calls in one answer."""
    grammar: Grammar | None = None
    """Grammar that the answer must match, unless it is a tool call."""
    reasoning_budget: int | None = None
    """Maximum number of reasoning tokens; -1 sets no limit, None takes the operator's choice."""
    reasoning_message: str | None = None
    """Text that ends reasoning at its limit, before the closing tag; None takes the operator's choice."""
    reasoning_control: bool = False
    """Let the client end the reasoning while it runs. A model that does not reason ignores it."""
    reasoning_inline: bool = False
    """Leave the reasoning in the content of the answer, with its tags."""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Further variables for the template, without those in `template_variables.RESERVED`."""
    continue_final: bool = False
    """Continue the last message, an assistant's, instead of starting another: its reasoning if it has no content."""
    open_answer: bool = True
    """End the prompt where an assistant's message begins. `continue_final` implies it."""
    parse_special: bool | None = None
    """Let names of control tokens in these texts become these tokens; None takes the operator's choice."""

    def changed(self, change: Change) -> "Conversation":
        """Return the conversation with changed texts of the client."""
        return replace(
            self,
            messages=tuple(change_message(message, change) for message in self.messages),
            tools=tuple(change_tool(tool, change) for tool in self.tools),
            template_kwargs={name: change_value(value, change) for name, value in self.template_kwargs.items()},
        )


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Rendered prompt, with the grammar and the parser for the generated text. It is slim, and can be encoded."""

    text: TextPrompt
    """The prompt. Names of control tokens in the client's texts are plain, unless the request parses them."""
    grammar: Grammar | None
    """Grammar that the generated text must match."""
    show_special: bool
    """True if the parser needs control tokens in the generated text."""
    parsing: ParserKey
    """Description of the parser of the generated text."""
    reasoning: Reasoning | None = None
    """Place and end of the reasoning, if the model reasons."""

    def generation(self, request: GenerationRequest) -> GenerationRequest:
        """Return a copy of a request with this prompt."""
        return request.replaced(
            prompts=(self.text,),
            grammar=self.grammar,
            reasoning=self.reasoning,
            show_special=self.show_special,
        )


class ChatModel:
    """Chat templates and output formats of one model. Safe to use from several threads."""

    def __init__(self, template: TemplateKey) -> None:
        """Compile the model's chat templates. Raises `RequestError` if one cannot be compiled."""
        self._plain = _TemplateFormat(template.source, template)
        self._with_tools = _TemplateFormat(template.tool_source, template) if template.tool_source else self._plain
        self._names = ControlNames(template.control_names)
        self._parse_special = template.defaults.parse_special

    def prompt(self, conversation: Conversation) -> ChatPrompt:
        """Return the prompt of a conversation. Takes as long as the template does.

        Raises:
            RequestError: if the template refuses the messages, with the template's own message; and if the
                conversation combines settings that exclude each other.
        """
        shown = _shown(conversation)
        return self._template(shown).prompt(shown, self._plain_names(shown))

    def text(self, conversation: Conversation) -> TextPrompt:
        """Return only the text of a prompt, as `prompt` does."""
        shown = _shown(conversation)
        return self._template(shown).text(shown, self._plain_names(shown))

    def _template(self, conversation: Conversation) -> "_TemplateFormat":
        return self._with_tools if conversation.tools else self._plain

    def _plain_names(self, conversation: Conversation) -> ControlNames:
        parsed = self._parse_special if conversation.parse_special is None else conversation.parse_special
        return ControlNames(()) if parsed else self._names


def _shown(conversation: Conversation) -> Conversation:
    """Return a conversation with the tools that the model sees."""
    return replace(conversation, tools=()) if conversation.tool_choice == "none" else conversation


class _TemplateFormat:
    """A chat template, its capabilities, and the output format that it asks the model for."""

    def __init__(self, source: str, template: TemplateKey) -> None:
        self._defaults = template.defaults
        try:
            self._template = ChatTemplate(source, bos=template.bos, eos=template.eos)
        except ValueError as error:
            message = f"The model's chat template cannot be used: {error}. Give another with --chat-template FILE."
            raise RequestError(message, code="chat_template_invalid", param="messages") from error
        self._capabilities = detect_capabilities(source, self._template.render)
        self._key = recognize(source)
        self._format = create(self._key, dict(template.special_tokens))

    def prompt(self, conversation: Conversation, names: ControlNames) -> ChatPrompt:
        """Return the prompt of a conversation, as `ChatModel.prompt` does.

        Args:
            conversation: the conversation to render, with the tools that the prompt shows to the model.
            names: the names that are plain in the client's texts.

        Raises:
            RequestError: as in `ChatModel.prompt`.
        """
        text, tools = self.text(conversation, names), conversation.tools
        thinking = bool(self._reasoning_to_continue(conversation)) or self._format.opens_thinking(text_of(text))
        grammar = self._grammar(conversation, thinking=thinking)
        drafts = grammar is not None or not self._format.calls_end_reasoning
        return ChatPrompt(
            text,
            grammar,
            self._format.show_special,
            ParserKey(
                format=self._key,
                tools=tuple(signature(tool, nested=self._format.nested_values) for tool in tools),
                thinking=thinking,
                one_call=not conversation.parallel_tool_calls,
                custom=tuple(tool.name for tool in tools if tool.custom),
                inline=conversation.reasoning_inline,
                drafts=drafts,
            ),
            self._defaults.reasoning.reasoning(
                self._format,
                conversation.reasoning_budget,
                conversation.reasoning_message,
                opened=thinking,
                controlled=conversation.reasoning_control,
                called=bool(tools) and not drafts,
            ),
        )

    def text(self, conversation: Conversation, names: ControlNames) -> TextPrompt:
        """Return only the text of a prompt, as `prompt` does."""
        survey = Survey(names)
        try:
            conversation.changed(survey.read)
            mask = survey.mask(self._template.source)
            return self._masked(conversation, mask) if mask else self._text(conversation)
        except RecursionError as error:
            message = "The messages are nested too deeply."
            raise RequestError(message, code="invalid_value", param="messages") from error

    def _masked(self, conversation: Conversation, mask: Mask) -> TextPrompt:
        try:
            return mask.reveal(self._text(conversation.changed(mask.hide)))
        except RequestError as error:
            raise RequestError(text_of(mask.reveal(error.message)), code=error.code, param=error.param) from error

    def _text(self, conversation: Conversation) -> str:
        if conversation.continue_final:
            return self._continued(conversation)
        return self._render(conversation, conversation.messages, opened=conversation.open_answer)

    def _continued(self, conversation: Conversation) -> str:
        *before, last = conversation.messages
        reasoning = self._reasoning_to_continue(conversation)
        end = {"reasoning_content": reasoning + _CUT} if reasoning else {"content": (last["content"] or "") + _CUT}
        text, cut, _ = self._render(conversation, [*before, {**last, **end}], opened=False).rpartition(_CUT)
        if cut:
            return text
        if reasoning and (tags := self._format.reasoning_tags):  # many templates hide reasoning, so that it is added
            begun = self._render(conversation, before, opened=True)
            return opened_reasoning(begun, self._format, tags) + reasoning
        message = "The chat template does not show the last message, so that it cannot be continued."
        raise RequestError(message, code="chat_template_refused", param="messages")

    def _reasoning_to_continue(self, conversation: Conversation) -> str:
        if not conversation.continue_final:
            return ""
        return reasoning_to_continue(conversation.messages[-1], self._format)

    def _render(self, conversation: Conversation, messages: Sequence[TemplateMessage], *, opened: bool) -> str:
        shown = messages if self._capabilities.calls else self._format.text_calls.render(messages)
        if (instructions := self._format.instructions(conversation.tools)) is not None:
            shown = with_instructions(shown, instructions)
        described = self._capabilities.describe(conversation.tools)
        variables = {**self._defaults.current_variables(), **conversation.template_kwargs}
        return self._template.render(
            {
                "functions": to_json(described, indent=2) if described else "",  # Firefunction's name for them
                **with_other_names(with_fitting_effort(variables, self._capabilities.efforts)),
                "messages": self._capabilities.adapt(shown),
                "tools": described,
                "add_generation_prompt": opened,
            }
        )

    def _grammar(self, conversation: Conversation, *, thinking: bool) -> Grammar | None:
        """Return the grammar for calls, for the answer, or for both.

        Where a call is demanded there is no other answer, so the answer's grammar is not used.
        """
        tools = conversation.tools
        call = partial(self._format.grammar, tools, parallel=conversation.parallel_tool_calls, thinking=thinking)
        if conversation.grammar is None:
            return call(conversation.tool_choice) if tools else None
        if tools and conversation.tool_choice != "auto":
            return call(conversation.tool_choice)
        answer = self._format.answer_grammar(conversation.grammar, thinking=thinking)
        demanded = call("required") if tools else None
        return answer if demanded is None else _either(demanded, answer)


def _either(calls: Grammar, answer: Grammar) -> Grammar:
    try:
        return Grammar(GrammarKind.LARK, f"start: calls | answer\ncalls: {embedded(calls)}\nanswer: {embedded(answer)}")
    except RequestError as error:
        message = "A GBNF grammar cannot be combined with tools; give it in Lark."
        raise RequestError(message, code="invalid_value", param="grammar") from error
