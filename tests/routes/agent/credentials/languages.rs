//! Labels of login forms in many languages.

/// The language, and the labels of the user name, the password, the code, and the button.
pub struct Labels(
    pub &'static str,
    pub &'static str,
    pub &'static str,
    pub &'static str,
    pub &'static str,
);

pub const LANGUAGES: [Labels; 14] = [
    Labels("en", "Username", "Password", "Verification code", "Log in"),
    Labels(
        "de",
        "Benutzername",
        "Kennwort",
        "Bestätigungscode",
        "Anmelden",
    ),
    Labels(
        "fr",
        "Identifiant",
        "Mot de passe",
        "Code de vérification",
        "Se connecter",
    ),
    Labels(
        "es",
        "Usuario",
        "Contraseña",
        "Código de verificación",
        "Iniciar sesión",
    ),
    Labels(
        "it",
        "Nome utente",
        "Password",
        "Codice di verifica",
        "Accedi",
    ),
    Labels(
        "pt",
        "Nome de usuário",
        "Senha",
        "Código de verificação",
        "Entrar",
    ),
    Labels(
        "nl",
        "Gebruikersnaam",
        "Wachtwoord",
        "Verificatiecode",
        "Inloggen",
    ),
    Labels(
        "pl",
        "Nazwa użytkownika",
        "Hasło",
        "Kod weryfikacyjny",
        "Zaloguj się",
    ),
    Labels("ja", "ユーザー名", "パスワード", "認証コード", "ログイン"),
    Labels("zh", "用户名", "密码", "验证码", "登录"),
    Labels(
        "ru",
        "Имя пользователя",
        "Пароль",
        "Код подтверждения",
        "Войти",
    ),
    Labels(
        "tr",
        "Kullanıcı adı",
        "Şifre",
        "Doğrulama kodu",
        "Giriş yap",
    ),
    Labels(
        "ar",
        "اسم المستخدم",
        "كلمة المرور",
        "رمز التحقق",
        "تسجيل الدخول",
    ),
    Labels("ko", "아이디", "비밀번호", "인증번호", "로그인"),
];

impl Labels {
    /// Returns a login form in which only the labels show which field is which. The password is a
    /// plain text field.
    pub fn html(&self) -> String {
        let Labels(language, user, password, code, button) = self;
        format!(
            "<!doctype html><html lang={language}><meta charset=utf-8><form>\
             <label>#1 <input name=f0></label>\
             <label for=f1>{user}</label><input id=f1 data-right=username>\
             <label>{password} <input name=f2 data-right=password></label>\
             <label>{code} <input name=f3 data-right=code></label>\
             <button>{button}</button></form>"
        )
    }
}
